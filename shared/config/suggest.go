package config

import (
	"slices"
	"strconv"
	"strings"

	"rollout/shared/text"
)

// maxQuoted bounds the part of a user's text that a message repeats, in bytes.
const maxQuoted = 64

func shorten(s string) string { return text.Truncate(s, maxQuoted, "…") }

func quote(s string) string { return strconv.Quote(shorten(s)) }

// suggest returns the known path that an unknown key of a table most likely
// means: the nearest spelling in that table, or the only name there that ends in the key,
// else the same name in another table that is in no list: the one that is the least deep.
// It returns "" without a good match.
func suggest(known []string, table, key string) string {
	table = withoutIndexes(table)
	var here, elsewhere []string
	for _, path := range known {
		dot := strings.LastIndexByte(path, '.')
		if parent := withoutIndexes(path[:max(dot, 0)]); parent == table {
			here = append(here, path[dot+1:])
		} else if path[dot+1:] == key && !strings.Contains(path[:max(dot, 0)], "[]") {
			elsewhere = append(elsewhere, path)
		}
	}
	if name := text.Nearest(here, key); name != "" {
		return name
	}
	longer := slices.DeleteFunc(here, func(name string) bool { return !strings.HasSuffix(name, "_"+key) })
	if len(longer) == 1 {
		return longer[0]
	}
	depth := func(path string) int { return strings.Count(path, ".") }
	slices.SortStableFunc(elsewhere, func(a, b string) int { return depth(a) - depth(b) })
	if len(elsewhere) == 1 || len(elsewhere) > 1 && depth(elsewhere[0]) < depth(elsewhere[1]) {
		return elsewhere[0]
	}
	return ""
}

func withoutIndexes(path string) string {
	var b strings.Builder
	skip := false
	for _, r := range path {
		switch {
		case r == '[':
			skip = true
		case r == ']':
			skip = false
		case !skip:
			b.WriteRune(r)
		}
	}
	return b.String()
}
