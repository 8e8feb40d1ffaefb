package filesystem

import "golang.org/x/sys/unix"

// RenameNoReplace renames a file unless the new name is taken.
func RenameNoReplace(fromFolder int, from string, toFolder int, to string) error {
	return unix.RenameatxNp(fromFolder, from, toFolder, to, unix.RENAME_EXCL)
}
