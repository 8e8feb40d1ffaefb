// Package machine is what a rented machine needs done before its workers start, for the
// boot scripts of the clouds. It writes the units of the inference servers from the
// deployment's config, finds the machine's own disks, and reads a server's log and
// limits. The scripts start what it writes.
//
// The values of a config go into argument lists and unit files here, and never through a
// shell.
package machine
