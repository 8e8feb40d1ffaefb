package filesystem

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"rollout/shared/fault"
)

func TestFaultGivesErrorNumbersKindsAndRemedies(t *testing.T) {
	t.Parallel()
	for number, want := range map[syscall.Errno]fault.Kind{
		syscall.ENOSPC: fault.Exhausted, syscall.EDQUOT: fault.Exhausted, syscall.EMFILE: fault.Exhausted,
		syscall.EROFS: fault.Denied, syscall.EACCES: fault.Denied, syscall.EPERM: fault.Denied, syscall.ELOOP: fault.Denied,
		syscall.ENOENT: fault.NotFound, syscall.EEXIST: fault.Conflict,
		syscall.ENOTDIR: fault.Invalid, syscall.ENAMETOOLONG: fault.Invalid,
		syscall.EIO: fault.Unavailable, syscall.ESTALE: fault.Unavailable, syscall.ENOTTY: fault.Internal,
	} {
		err := Fault(&fs.PathError{Op: "open", Path: "x", Err: number}, "put %s", "key")
		if !fault.Is(err, want) || !errors.Is(err, number) || !strings.HasPrefix(err.Error(), "put key: ") {
			t.Errorf("%v: %v of kind %s, want %s", number, err, fault.KindOf(err), want)
		}
	}
	for number, entry := range errnos {
		wantsRemedy := entry.kind == fault.Exhausted || entry.kind == fault.Denied
		if wantsRemedy && entry.remedy == "" {
			t.Errorf("%v has no remedy", number)
		}
	}
	if err := Fault(nil, "x"); err != nil {
		t.Errorf("Fault(nil) = %v, want nil", err)
	}
	if err := Fault(fault.New(fault.Conflict, "taken"), "put"); !fault.Is(err, fault.Conflict) {
		t.Errorf("Fault of a Conflict = %v, want Conflict", err)
	}
}
