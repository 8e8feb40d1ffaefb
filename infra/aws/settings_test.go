package main

import (
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
)

func TestWhatIsGivenIsReadOrRefused(t *testing.T) {
	defer jsii.Close()
	const config = "stack/testdata/rollout.toml"
	for name, c := range map[string]struct {
		given map[string]any
		want  string // of the error
	}{
		"nothing but a config": {map[string]any{"config": config, "@aws-cdk/core:checkSecretUsage": true, "aws:cdk:toolkit": "x"}, ""},
		"what there is":        {map[string]any{"config": config, "gpu": "false", "zones": "3", "arch": "x86_64", "email": "you@example.org", "budget": "0"}, ""},
		"a misspelt name":      {map[string]any{"config": config, "gpus": "false"}, "there is no -c gpus: there are arch, bucket, budget, config, email, gpu, lambda, table, worker, zones"},
		"no config there":      {map[string]any{"config": "none.toml"}, "no such file or directory (name it with -c config=FILE"},
		"no truth":             {map[string]any{"config": config, "gpu": "maybe"}, `gpu is "maybe": it is true or false`},
	} {
		_, err := settings(awscdk.NewApp(&awscdk.AppProps{Context: &c.given}).Node())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
