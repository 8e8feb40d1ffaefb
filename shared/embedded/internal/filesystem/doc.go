// Package filesystem has what the embedded drivers share: kinds and remedies of
// the operating system's errors, renames that replace nothing, synced folders,
// and who holds a file lock.
package filesystem
