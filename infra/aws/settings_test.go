package main

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"

	"rollout/infra/aws/stack"
)

func TestMain(m *testing.M) {
	code := m.Run()
	jsii.Close() // here, because all tests share one Node process
	os.Exit(code)
}

func TestReadSettingsAcceptsKnownNamesAndRefusesOthers(t *testing.T) {
	const config = "stack/testdata/rollout.toml"
	for name, c := range map[string]struct {
		given map[string]any
		want  string // part of the error; "" if it succeeds
	}{
		"only a config and the CDK's own names": {
			map[string]any{"config": config, "@aws-cdk/core:checkSecretUsage": true, "aws:cdk:toolkit": "x"},
			"",
		},
		"valid values": {
			map[string]any{
				"config": config, "gpu": "false", "api": "false", "zones": "3", "arch": "x86_64",
				"email": "you@example.org", "budget": "0",
			},
			"",
		},
		"a misspelt name": {
			map[string]any{"config": config, "gpus": "false"},
			"-c gpus is not a setting: use one of api, arch, boundary, bucket, budget, config, email, ",
		},
		"the config does not exist": {
			map[string]any{"config": "none.toml"},
			"no such file or directory (name it with -c config=FILE",
		},
		"not a boolean": {
			map[string]any{"config": config, "gpu": "maybe"},
			`gpu is "maybe": use true or false`,
		},
	} {
		_, err := readSettings(awscdk.NewApp(&awscdk.AppProps{Context: &c.given}).Node())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want %q", name, err, c.want)
		}
	}
}

// kms is the key of every part that has no other, and "aws" is none of one's own.
func TestReadSettingsTakesWhatAnOrganisationDemands(t *testing.T) {
	given := map[string]any{
		"config": "stack/testdata/rollout.toml", "vpc": "vpc-1", "subnets": "subnet-1, subnet-2", "security_group": "sg-1",
		"endpoints": "true", "route_tables": "rtb-1", "boundary": "b", "role_path": "/p/", "role_prefix": "p-",
		"kms": "all", "kms_table": "table", "kms_disks": "aws", "kms_secrets": "secrets", "kms_read": "x,y",
	}
	s, err := readSettings(awscdk.NewApp(&awscdk.AppProps{Context: &given}).Node())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ got, want any }{
		{s.Network, stack.Network{VPC: "vpc-1", Subnets: []string{"subnet-1", "subnet-2"}, SecurityGroup: "sg-1",
			Endpoints: true, RouteTables: []string{"rtb-1"}}},
		{s.Identity, stack.Identity{Boundary: "b", Path: "/p/", Prefix: "p-"}},
		{s.Keys, stack.Keys{Bucket: "all", Queues: "all", Table: "table", Secrets: "secrets", Read: []string{"x", "y"}}},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("got %+v, want %+v", c.got, c.want)
		}
	}
}
