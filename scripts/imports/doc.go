// Package imports holds the arrows between rollout's packages: what may import
// what, who may name a driver, and what the pure engine may not touch.
//
// It reads the source tree with the standard library's parser, in process, so
// that `go test` knows which files the result depends on. A package without a
// rule fails: a new one is a decision, written down in Rules. It judges names,
// imports and words alone; it never builds or runs anything.
package imports
