// Package openaiclient tests `rollout serve` and the Batch API of `rollout up` with clients
// that many users have: OpenAI's for Python and Node, and LiteLLM. install.sh installs them in a
// folder. Without it the tests are skipped; in CI they fail.
package openaiclient
