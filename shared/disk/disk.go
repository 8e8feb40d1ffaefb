// Package disk changes files and folders so that the changes survive a failure of the machine's power.
//
//	write a hidden file ──▶ sync the file ──▶ rename it ──▶ sync its folder ──▶ durable
//	make a folder ──▶ sync the folder above ──▶ durable
//
// A file system keeps less than it shows. After a power failure the bytes of a file
// that was not synced may be missing, zero or mixed with older ones, and each name that
// was created, renamed or removed since the last sync of its folder may have its old or
// its new meaning. ext4, XFS, Btrfs and APFS keep a rename as a whole; some of them
// happen to keep more, for example the name of a synced file. The package relies on
// nothing but synced files, synced folders and atomic renames.
//
// Disk has the calls whose effects a power failure can undo. Drivers make these calls
// through it, so that package disktest can let the power fail at each of them. Reading
// files and writing bytes to open files need no Disk. The package never removes what it
// did not create.
package disk

// Disk changes names and makes changes durable. A folder is an open file descriptor, or
// AtWorkingDir; names are relative to it. Errors are error numbers of the operating
// system. The methods may be called concurrently.
type Disk interface {
	// Mkdir creates a folder.
	Mkdir(folder int, name string) error
	// Create creates a file and opens it for reading and writing. It fails with EEXIST
	// if the name exists. The name "" creates a file without a name, which the kernel
	// removes when it is closed; Name can name it before.
	Create(folder int, name string, mode uint32) (fd int, err error)
	// Name gives a name to a file that was created without one. It fails with EEXIST
	// if the name exists.
	Name(fd, folder int, name string) error
	// Link gives a file a second name. It fails with EEXIST if the name exists.
	Link(fromFolder int, from string, toFolder int, to string) error
	// Rename renames a file or folder. Unless it may replace, it fails with EEXIST if
	// the new name exists; some file systems do not support that and return EINVAL.
	Rename(fromFolder int, from string, toFolder int, to string, replace bool) error
	// Remove removes a file, or an empty folder.
	Remove(folder int, name string, isFolder bool) error
	// Sync makes the content and attributes of an open file durable, or the names in an
	// open folder.
	Sync(fd int) error
}

// System is the machine's own disk.
type System struct{}

var _ Disk = System{}
