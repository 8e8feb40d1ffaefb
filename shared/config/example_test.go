package config_test

import (
	"fmt"

	"rollout/shared/config"
)

// A config is read onto the defaults; all of its problems are reported at once.
func ExampleParseRun() {
	run, err := config.ParseRun("nightly.toml", []byte(`
schema_version = 1

[sampling]
max_tokens = 256

[limits]
deadline = "6h"
`))
	fmt.Println(run.Kind, run.Shard.Items, *run.Sampling.MaxTokens, run.Limits.Deadline.Std(), err)

	_, err = config.ParseRun("nightly.toml", []byte(`
schema_version = 1

[sampling]
temprature = 0.7
max_tokens = 0
`))
	fmt.Println(err)

	// Output:
	// batch 0 256 6h0m0s <nil>
	// nightly.toml:5: sampling.temprature: unknown key; did you mean temperature?
	// nightly.toml:6: sampling.max_tokens: must be between 1 and 2147483647, is 0
}
