package config

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/BurntSushi/toml"

	"rollout/shared/fault"
)

// Value is what a config says for one key.
type Value struct {
	Key     string // with dots between its parts
	Text    string // in the spelling of JSON; those of headers and queries, which may be keys, are "***"
	Default bool   // DefaultRun says the same
}

// Values returns the values of a run's config, sorted by key: those that differ from the
// defaults, and defaults that say something, which 0, false and empty ones do not.
func (r Run) Values() ([]Value, error) {
	values, err := textsOf(r)
	if err != nil {
		return nil, err
	}
	defaults, err := textsOf(DefaultRun())
	if err != nil {
		return nil, err
	}
	var out []Value
	for _, key := range sortedKeys(values) {
		v := Value{Key: key, Text: values[key], Default: defaults[key] == values[key]}
		switch v.Text {
		case `""`, `"0s"`, "0", "false", "[]", "null":
			// Of the keys that the defaults lack, those of [sampling] are left to the server
			// unless a file sets them; others are empty parts of a table.
			_, known := defaults[key]
			if v.Default || !known && !strings.HasPrefix(key, "sampling.") {
				continue
			}
		}
		out = append(out, v)
	}
	return out, nil
}

// FileKeys returns the keys that a TOML file names, sorted, with dots between their parts.
// A file that is not TOML has none.
func FileKeys(src []byte) []string {
	tree, ok := newChecker("", nil).tree(src)
	if !ok {
		return nil
	}
	keys := map[string]bool{}
	addKeys(keys, tree, "")
	return sortedKeys(keys)
}

// textsOf returns the values of a config by their keys, as JSON.
func textsOf(r Run) (map[string]string, error) {
	var src bytes.Buffer
	if err := toml.NewEncoder(&src).Encode(r); err != nil {
		return nil, fault.WithKind(fault.Internal, err, "write the config")
	}
	var tree map[string]any
	if _, err := toml.Decode(src.String(), &tree); err != nil {
		return nil, fault.WithKind(fault.Internal, err, "read the config")
	}
	out := map[string]string{}
	return out, addTexts(out, tree, "")
}

// concealed stands for the value of a header or a member of a query.
const concealed = "***"

// isConcealed reports whether the table at a path is of headers or of a query, of any
// request: that of the run, of a reflection or of a grade.
func isConcealed(at string) bool {
	return strings.HasSuffix("."+at, ".request.headers") || strings.HasSuffix("."+at, ".request.query")
}

// conceal replaces the values of headers and queries in a list of tables.
func conceal(value any, at string) any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, x := range v {
			if out[key] = conceal(x, join(at, key)); isConcealed(at) {
				out[key] = concealed
			}
		}
		return out
	case []map[string]any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = conceal(x, at)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = conceal(x, at)
		}
		return out
	}
	return value
}

func addTexts(out map[string]string, tree map[string]any, at string) error {
	for key, value := range tree {
		if isConcealed(at) {
			out[join(at, key)] = concealed
			continue
		}
		if table, ok := value.(map[string]any); ok {
			if err := addTexts(out, table, join(at, key)); err != nil {
				return err
			}
			continue
		}
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(conceal(value, join(at, key))); err != nil {
			return fault.WithKind(fault.Internal, err, "write the value of %s", key)
		}
		out[join(at, key)] = strings.TrimSpace(b.String())
	}
	return nil
}
