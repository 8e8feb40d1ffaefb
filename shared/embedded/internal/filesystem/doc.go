// Package filesystem has the helpers that the embedded drivers share. It gives
// errors of the operating system a kind and a remedy, and finds the process that holds
// a file lock.
package filesystem
