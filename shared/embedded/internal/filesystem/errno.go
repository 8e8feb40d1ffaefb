package filesystem

import (
	"errors"
	"fmt"
	"syscall"

	"rollout/shared/fault"
)

// errnos says what kind of fault an error number of the operating system is,
// and what the user can do about it. Numbers that are not here are Internal.
var errnos = map[syscall.Errno]struct {
	kind   fault.Kind
	remedy string
}{
	syscall.ENOENT: {fault.NotFound, ""},
	syscall.EEXIST: {fault.Conflict, ""},

	syscall.ENOSPC: {fault.Exhausted, "free some space on that disk"},
	syscall.EDQUOT: {fault.Exhausted, "the disk quota is used up: free some space or raise it"},
	syscall.EFBIG:  {fault.Exhausted, "the file system takes no file of that size"},
	syscall.EMFILE: {fault.Exhausted, "raise the limit of open files (ulimit -n)"},
	syscall.ENFILE: {fault.Exhausted, "the machine's limit of open files is reached"},
	syscall.ENOMEM: {fault.Exhausted, "the machine is out of memory"},
	syscall.EMLINK: {fault.Exhausted, "the folder holds as many folders as its file system takes"},

	syscall.EROFS:  {fault.Denied, "the file system is mounted read-only"},
	syscall.EACCES: {fault.Denied, "give this user the right to read and write there"},
	syscall.EPERM:  {fault.Denied, "give this user the right to read and write there"},
	syscall.ELOOP:  {fault.Denied, "symbolic links are not followed in a bucket: move or copy the file there"},

	syscall.ENOTDIR:      {fault.Invalid, "a file stands where a folder is needed: use another name"},
	syscall.EISDIR:       {fault.Invalid, "a folder stands where a file is needed: use another name"},
	syscall.ENAMETOOLONG: {fault.Invalid, "use a shorter name"},
	syscall.EXDEV:        {fault.Invalid, "the bucket's folders must all be on one file system: mount the whole bucket, not a folder in it"},
	syscall.EINVAL:       {fault.Invalid, ""},
	syscall.EILSEQ:       {fault.Invalid, "the file system takes no such name"},

	syscall.EIO:       {fault.Unavailable, "the disk reports an error"},
	syscall.ESTALE:    {fault.Unavailable, ""},
	syscall.EAGAIN:    {fault.Unavailable, ""},
	syscall.EBUSY:     {fault.Unavailable, ""},
	syscall.EINTR:     {fault.Unavailable, ""},
	syscall.ENODEV:    {fault.Unavailable, "the disk is gone"},
	syscall.ENXIO:     {fault.Unavailable, "the disk is gone"},
	syscall.ETIMEDOUT: {fault.Unavailable, ""},
}

// Fault gives an error of the operating system its kind and remedy and says
// what was being done; nil stays nil, and an error that has a kind keeps it.
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

// IgnoreEINTR repeats a system call that a signal cut short.
func IgnoreEINTR(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
