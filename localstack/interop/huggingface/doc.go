// Package huggingface tests that Hugging Face's own libraries read an exported
// folder: the same token ids, and tensors that mean what their names say.
//
// The libraries run in Python (check.py), in an environment that install.sh
// makes. Where it is not there, tests are skipped, and fail in CI.
package huggingface
