// Package huggingface tests that Hugging Face's libraries read an exported folder:
// they compute the same token ids, and the tensors give the same logits.
//
// The libraries run in Python (check.py), in an environment that install.sh
// creates. Without the environment the tests are skipped; in CI they fail.
package huggingface
