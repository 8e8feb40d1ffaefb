package config_test

import (
	"bytes"
	"testing"

	"rollout/shared/config"
)

func TestConfigForOneRunSaysWhatOthersTake(t *testing.T) {
	t.Parallel()
	own := []byte("schema_version = 1\nlimits.deadline = \"6s\"\n")
	for name, before := range map[string][]byte{
		"none": nil, "empty": {}, "some": []byte("# mine\nschema_version = 1\n\nlimits.tokens = 7\n"),
	} {
		src := config.OneRun{Size: 42, Before: before}.Write(own)
		got, one := config.ReadOneRun(src)
		if !one || got.Size != 42 || (got.Before == nil) != (before == nil) || !bytes.Equal(got.Before, before) {
			t.Errorf("%s: %v %+v", name, one, got)
		}
		run, err := config.ParseRun("x.toml", src)
		if err != nil || run.Limits.Deadline == 0 || run.Limits.Tokens != 0 {
			t.Errorf("%s: %v %+v", name, err, run.Limits)
		}
	}
	const broken = "# `rollout submit --set` wrote this for one run, of a file of x"
	for _, src := range []string{"", "schema_version = 1\n", broken} {
		if o, one := config.ReadOneRun([]byte(src)); one {
			t.Errorf("%q is for one run: %+v", src, o)
		}
	}
}
