// Package duckdb tests that DuckDB queries the facts of a run while it goes on, and after its
// end.
//
// DuckDB runs in Python (check.py), in an environment that install.sh creates. Without the
// environment the test is skipped; in CI it fails.
package duckdb
