// Package openaiclient tries OpenAI's own Python client on `rollout serve`: what
// that client makes of our answers is what users get. Its test needs `make
// openai-client`.
package openaiclient
