// Package bucket implements the blob port on a folder: each object is a file, and
// its key is the path of the file below the folder.
//
// A put writes a temporary file, syncs it, renames it, and syncs the folders whose
// names may not be durable yet, so a reader sees a complete object or none, and a put
// that returned survives a power failure. The version of an object consists of inode,
// size and modification time, so a file that a user replaces is a new version, and so is
// one that was copied or restored: digests decide whether it has the bytes of before.
// Watch reports the files that users put there. Several processes may share one folder.
// The package never follows symbolic links, never uses the network and never retries.
package bucket
