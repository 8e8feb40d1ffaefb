// Package imports holds the rules of the source tree as tests: which package
// may import which, who may name a driver, what the pure core may not use, and
// what no source file may contain.
//
// The tests read the tree with the standard library's parser, in process, so
// that `go test` knows which files a result depends on. A package without a
// rule fails: where a new package belongs is a decision, written down in Rules.
// The package changes no file and starts no program, except `go list`, which
// names the packages that are linked into a program.
package imports
