package blob

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"rollout/shared/fault"
)

// MaxSegment is the longest part of a key between slashes, in bytes: what a
// file system takes as a name.
const MaxSegment = 255

// MaxParts is the largest number of ranges that one Join takes.
const MaxParts = 10_000

// MaxList is the largest page that one List gives.
const MaxList = 10_000

// CheckKey refuses, as Invalid, a key that some store can't hold. Drivers call it,
// through the other Check functions, before they do anything else, so that the
// rules stand in one place.
func CheckKey(key string) error {
	switch {
	case key == "":
		return badName("key", key, "is empty")
	case strings.HasPrefix(key, "/"):
		return badName("key", key, "begins with a slash")
	case strings.HasSuffix(key, "/"):
		return badName("key", key, "ends with a slash")
	}
	return checkName("key", key)
}

// CheckPrefix refuses a prefix that no key can start with. The empty prefix
// and one that ends within a segment are fine.
func CheckPrefix(prefix string) error {
	if strings.HasPrefix(prefix, "/") {
		return badName("prefix", prefix, "begins with a slash")
	}
	return checkName("prefix", strings.TrimSuffix(prefix, "/"))
}

// CheckPut refuses a bad key and conditions that contradict each other.
func CheckPut(key string, o PutOptions) error {
	if o.CreateOnly && o.IfVersion != "" {
		return fault.New(fault.Invalid, "put %s: create-only and if-version exclude each other", key)
	}
	return CheckKey(key)
}

// CheckGet refuses a bad key and a negative range.
func CheckGet(key string, o GetOptions) error {
	if o.Offset < 0 || o.Length < 0 {
		return fault.New(fault.Invalid, "get %s: negative range: offset %d, length %d", key, o.Offset, o.Length)
	}
	return CheckKey(key)
}

// CheckList refuses a bad prefix and a page size outside 1 to MaxList.
func CheckList(prefix string, limit int) error {
	if limit < 1 || limit > MaxList {
		return fault.New(fault.Invalid, "list %q: the limit must be from 1 to %d, not %d", prefix, MaxList, limit)
	}
	return CheckPrefix(prefix)
}

// CheckJoin refuses bad keys, a negative range, no ranges and too many.
func CheckJoin(dst string, parts []Range) error {
	if err := CheckKey(dst); err != nil {
		return err
	}
	if len(parts) < 1 || len(parts) > MaxParts {
		return fault.New(fault.Invalid, "join %s: takes from 1 to %d ranges, not %d", dst, MaxParts, len(parts))
	}
	for _, p := range parts {
		if err := CheckGet(p.Key, GetOptions{Offset: p.Offset, Length: p.Length}); err != nil {
			return err
		}
	}
	return nil
}

// Resolve returns where the range lies in an object of the size, for a Join. A
// range that reaches past the end is Invalid: the joined object would be too
// short, and nothing would report it.
func (r Range) Resolve(size int64) (offset, length int64, err error) {
	length = r.Length
	if length == 0 {
		length = size - r.Offset
	}
	if r.Offset > size || length > size-r.Offset {
		return 0, 0, fault.New(fault.Invalid, "the range at offset %d, length %d is not within %s of %d bytes",
			r.Offset, r.Length, r.Key, size)
	}
	return r.Offset, length, nil
}

// checkName checks the rules that keys and prefixes share.
func checkName(what, name string) error {
	if len(name) > MaxKey {
		return badName(what, name[:64]+"...", "is longer than 512 bytes")
	}
	if !utf8.ValidString(name) {
		return badName(what, name, "is not UTF-8")
	}
	if strings.ContainsFunc(name, unicode.IsControl) {
		return badName(what, name, "has a control character")
	}
	if name == "" {
		return nil
	}
	for segment := range strings.SplitSeq(name, "/") {
		switch {
		case segment == "":
			return badName(what, name, "has an empty segment")
		case segment[0] == '.':
			return badName(what, name, "has a segment that begins with a dot")
		case len(segment) > MaxSegment:
			return badName(what, name[:64]+"...", "has a segment longer than 255 bytes")
		}
	}
	return nil
}

func badName(what, name, why string) error {
	return &fault.Error{
		Kind:   fault.Invalid,
		Err:    fault.New(fault.Invalid, "%s %q %s", what, name, why),
		Remedy: "use UTF-8 names without leading dots, separated by single slashes, at most 512 bytes in all",
	}
}

// IsPartial reports whether an object has a name that programs give a file until it is
// complete: it begins with a dot, or ends in .part or .tmp. Such an object does not become a run.
func IsPartial(key string) bool {
	name := key[strings.LastIndexByte(key, '/')+1:]
	return strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".part") || strings.HasSuffix(name, ".tmp")
}
