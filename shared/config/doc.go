// Package config reads and checks rollout's four config files: that of a run
// (prompts/x.toml), of a deployment (rollout.toml), of `rollout infer batch`
// and of `rollout train`.
//
// A Parse function takes the bytes of a file and writes their values over the
// defaults. An unknown key is an error, so that a misspelt setting fails before
// a run starts. The error holds all problems of the file, each with the file,
// line, field and remedy. Values that come from flags pass the same checks
// through the Check methods.
//
// The package never opens a file, never reads the environment, and never holds
// a secret: configs name secrets, and the secret port reads their values.
package config
