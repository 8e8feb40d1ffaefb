package blob

import "strings"

// IsPartial reports whether an object has a name that programs give a file until it is
// complete: it begins with a dot, or ends in .part or .tmp. Such an object does not become a run.
func IsPartial(key string) bool {
	name := key[strings.LastIndexByte(key, '/')+1:]
	return strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".part") || strings.HasSuffix(name, ".tmp")
}
