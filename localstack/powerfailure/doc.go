// Package powerfailure lets the power of a machine fail while real functions work over
// the embedded bucket: at each call that changes its files (see disktest). Documents are
// in memory, because each commit of SQLite is durable when it returns; the state's own
// files are tested with its driver.
package powerfailure
