package grade

import (
	"encoding/json"
	"strconv"
	"strings"

	"rollout/shared/jsonl"
)

// Lookup returns the value at the path in a line that was parsed before: names of
// members, and numbers of elements from 0, with a dot between them. It returns
// nil if there is none, or if it is null.
func Lookup(line []byte, path string) json.RawMessage {
	value := line
	for name := range strings.SplitSeq(path, ".") {
		if value = step(value, name); value == nil {
			return nil
		}
	}
	if string(value) == "null" {
		return nil
	}
	return value
}

// step returns the member or element of a value; nil if there is none.
func step(value []byte, name string) []byte {
	o := jsonl.ReadKnownObject(value)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		if string(m.Name) == name {
			return m.Value
		}
	}
	if n, err := strconv.Atoi(name); err == nil && n >= 0 {
		a := jsonl.ReadKnownArray(value)
		for e, ok := a.Next(); ok; e, ok = a.Next() {
			if n == 0 {
				return e
			}
			n--
		}
	}
	return nil
}
