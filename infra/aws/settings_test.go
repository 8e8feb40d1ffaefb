package main

import (
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
)

func TestReadSettingsAcceptsKnownNamesAndRefusesOthers(t *testing.T) {
	defer jsii.Close()
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
			"-c gpus is not a setting: use one of api, arch, bucket, budget, config, email, gpu, lambda, " +
				"ssm, table, worker, zones",
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
