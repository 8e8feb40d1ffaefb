package text

import "strings"

// ShellWord returns s as one word of a shell's command line: quoted if it has characters
// other than letters, digits and ._-+=/,@%:.
func ShellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("._-+=/,@%:", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// ShellPath is ShellWord for the path of a file. One that begins with a hyphen gets "./"
// before it, so that no command reads it as a flag.
func ShellPath(path string) string {
	if strings.HasPrefix(path, "-") {
		path = "./" + path
	}
	return ShellWord(path)
}
