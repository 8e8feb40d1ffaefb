// Package openaiclient tests `rollout serve` and the Batch API of `rollout up` with OpenAI's Python client, which
// many users have. The client runs in an environment that install.sh creates.
// Without the environment the test is skipped; in CI it fails.
package openaiclient
