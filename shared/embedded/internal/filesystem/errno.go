package filesystem

import (
	"errors"
	"fmt"
	"syscall"

	"rollout/shared/fault"
)

// errnos maps error numbers of the operating system to kinds of fault and
// remedies. A number that it lacks is Internal.
var errnos = map[syscall.Errno]struct {
	kind   fault.Kind
	remedy string
}{
	syscall.ENOENT: {fault.NotFound, ""},
	syscall.EEXIST: {fault.Conflict, ""},

	syscall.ENOSPC: {fault.Exhausted, "free some space on that disk"},
	syscall.EDQUOT: {fault.Exhausted, "the disk quota is used up: free some space or raise the quota"},
	syscall.EFBIG:  {fault.Exhausted, "the file is larger than the file system allows: use another file system"},
	syscall.EMFILE: {fault.Exhausted, "raise the limit of open files (ulimit -n)"},
	syscall.ENFILE: {fault.Exhausted, "the machine's limit of open files is reached: raise it, or close other programs"},
	syscall.ENOMEM: {fault.Exhausted, "the machine is out of memory: close other programs, or add memory"},
	syscall.EMLINK: {fault.Exhausted, "the folder has as many subfolders as its file system allows: use another folder"},

	syscall.EROFS:  {fault.Denied, "the file system is mounted read-only: mount it writable, or use another folder"},
	syscall.EACCES: {fault.Denied, "give this user permission to read and write there"},
	syscall.EPERM:  {fault.Denied, "give this user permission to read and write there"},
	syscall.ELOOP:  {fault.Denied, "a bucket does not follow symbolic links: move or copy the file there"},

	syscall.ENOTDIR:      {fault.Invalid, "a file is where a folder is needed: use another name"},
	syscall.EISDIR:       {fault.Invalid, "a folder is where a file is needed: use another name"},
	syscall.ENAMETOOLONG: {fault.Invalid, "use a shorter name"},
	syscall.EXDEV: {fault.Invalid, "the bucket's folders must all be on one file system: " +
		"mount the whole bucket, not a folder in it"},
	syscall.EINVAL: {fault.Invalid, ""},
	syscall.EILSEQ: {fault.Invalid, "the file system does not allow this name: use another one"},

	syscall.EIO:       {fault.Unavailable, "the disk reports an error: check it"},
	syscall.ESTALE:    {fault.Unavailable, ""},
	syscall.EAGAIN:    {fault.Unavailable, ""},
	syscall.EBUSY:     {fault.Unavailable, ""},
	syscall.EINTR:     {fault.Unavailable, ""},
	syscall.ENODEV:    {fault.Unavailable, "the disk is not connected: check it"},
	syscall.ENXIO:     {fault.Unavailable, "the disk is not connected: check it"},
	syscall.ETIMEDOUT: {fault.Unavailable, ""},
}

// Fault wraps an error of the operating system with its kind, its remedy and the
// operation that format describes. A nil error stays nil, and an error that has a
// kind keeps it.
func Fault(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	var classified *fault.Error
	var number syscall.Errno
	if errors.As(err, &classified) || !errors.As(err, &number) {
		return fault.Wrap(err, format, args...)
	}
	entry := errnos[number] // the zero entry is Internal
	return &fault.Error{Kind: entry.kind, Op: fmt.Sprintf(format, args...), Remedy: entry.remedy, Err: err}
}
