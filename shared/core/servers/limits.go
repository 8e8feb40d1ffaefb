package servers

import (
	"encoding/json"
	"strconv"
)

// ReadContext returns the context length in the document at Limits, or 0 if it does not
// say it.
func (s Server) ReadContext(document []byte) int {
	var root any
	if json.Unmarshal(document, &root) != nil {
		return 0
	}
	for _, path := range s.Context {
		if n, ok := member(root, path).(float64); ok && n > 0 {
			return int(n)
		}
	}
	return 0
}

// member returns the value at a path of members and of places in lists, or nil.
func member(x any, path []string) any {
	for _, name := range path {
		switch v := x.(type) {
		case map[string]any:
			x = v[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(v) {
				return nil
			}
			x = v[i]
		default:
			return nil
		}
	}
	return x
}
