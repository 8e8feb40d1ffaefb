package convert

import (
	"slices"
	"strings"

	"rollout/shared/jsonl"
)

// column is one member that a conversion keeps.
type column struct{ name, from string }

// columns are the members that a conversion keeps, in the order of the output. Nil keeps all.
type columns []column

// parseColumns parses elements such as "id" and "prompt=question": the second one renames question to prompt.
func parseColumns(list []string) (columns, error) {
	var cs columns
	for _, text := range list {
		name, from, renamed := strings.Cut(text, "=")
		if !renamed {
			from = name
		}
		if name == "" || from == "" {
			return nil, invalid("write NAME or NEW=OLD", "--columns has %q", text)
		}
		if slices.ContainsFunc(cs, func(c column) bool { return c.name == name }) {
			return nil, invalid("name it once", "--columns has the column %s twice", name)
		}
		cs = append(cs, column{name, from})
	}
	return cs, nil
}

// names returns the selected ones of an input's columns, under the names of the output. A selected column that the
// input lacks is Invalid.
func (cs columns) names(have []string) ([]string, error) {
	if cs == nil {
		return have, nil
	}
	names := make([]string, len(cs))
	for i, c := range cs {
		if !slices.Contains(have, c.from) {
			return nil, invalid("it has: "+list(have), "the input has no column %s", c.from)
		}
		names[i] = c.name
	}
	return names, nil
}

// apply appends the selected members of a record to dst, as an object.
func (cs columns) apply(dst, record []byte) []byte {
	var few [16]jsonl.Member
	members := few[:0]
	o := jsonl.ReadKnownObject(record)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		members = append(members, m)
	}
	dst = append(dst, '{')
	first := true
	for _, c := range cs {
		for _, m := range members {
			if string(m.Name) != c.from {
				continue
			}
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = append(jsonl.AppendQuoted(dst, c.name), ':')
			dst = append(dst, m.Value...)
		}
	}
	return append(dst, '}')
}

// list lists names for an error, at most a dozen.
func list(names []string) string {
	const most = 12
	if len(names) > most {
		return strings.Join(names[:most], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}
