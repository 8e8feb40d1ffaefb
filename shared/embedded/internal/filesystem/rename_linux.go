package filesystem

import "golang.org/x/sys/unix"

// RenameNoReplace renames a file. It fails with EEXIST if the new name exists.
func RenameNoReplace(fromFolder int, from string, toFolder int, to string) error {
	return unix.Renameat2(fromFolder, from, toFolder, to, unix.RENAME_NOREPLACE)
}
