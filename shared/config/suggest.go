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
	if name := nearest(here, key); name != "" {
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

// nearest returns the name that key most likely misspells, or "".
func nearest(names []string, key string) string {
	best, bestCost := "", 3
	for _, name := range names {
		if len(key) > 2*len(name)+2 {
			continue
		}
		cost := distance(strings.ToLower(key), name)
		if cost < bestCost && cost <= 1+len(name)/4 {
			best, bestCost = name, cost
		}
	}
	return best
}

// distance returns the Levenshtein distance of two texts in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
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
