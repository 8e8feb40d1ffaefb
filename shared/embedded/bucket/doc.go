// Package bucket drives the blob port with a folder: each object is a file, and
// its key is the file's path below the folder.
//
// A put writes a temporary file, syncs it, and gives it its name in one step, so
// a reader sees an object whole or not at all. An object's version is made of
// inode, size and time of modification, so a file that its user replaces is a
// new version. Watch reports files that users put there. Several processes may
// share one folder. The package follows no symbolic link, never reaches the
// network and never retries.
package bucket
