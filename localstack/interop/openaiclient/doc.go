// Package openaiclient tests `rollout serve` and the Batch API of `rollout up` with OpenAI's clients for Python and
// Node, which many users have. install.sh installs them in a folder. Without it the tests are skipped; in CI they fail.
package openaiclient
