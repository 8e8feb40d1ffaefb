package config

import (
	"bytes"

	"github.com/BurntSushi/toml"

	"rollout/shared/fault"
)

// Compact returns a config that says the same without comments and blank
// lines, for places with little room such as a function's environment. It
// checks nothing but that src is TOML: Invalid if it is not.
func Compact(src []byte) ([]byte, error) {
	c := newChecker("", nil)
	tree, ok := c.tree(src)
	if !ok {
		return nil, c.err()
	}
	var out bytes.Buffer
	e := toml.NewEncoder(&out)
	e.Indent = ""
	if err := e.Encode(tree); err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "write the config again")
	}
	var lines [][]byte
	for line := range bytes.Lines(out.Bytes()) {
		if len(bytes.TrimSpace(line)) > 0 {
			lines = append(lines, line)
		}
	}
	return bytes.Join(lines, nil), nil
}
