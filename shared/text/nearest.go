package text

import "strings"

// Nearest returns the name that key most likely misspells, or "".
func Nearest(names []string, key string) string {
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
