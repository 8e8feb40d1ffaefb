// Package config reads and checks rollout's four config files: of a run
// (prompts/x.toml), of a deployment (rollout.toml), of `rollout infer batch`
// and of `rollout train`.
//
// A file is read onto the defaults, strictly: a key that nobody reads is an
// error, because a misspelt setting must fail before anything runs and not in
// its forty-seventh minute. All problems of a file are reported at once, each
// with file, line, field, and what to do. Values that come from flags pass the
// same Check methods.
//
// The package never opens a file, never reads the environment, and never holds
// a secret: configs name secrets, the secret port has them.
package config
