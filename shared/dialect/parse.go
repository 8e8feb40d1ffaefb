package dialect

import (
	"bytes"
	"unicode/utf8"

	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

// Parse reads one line. Its errors are Invalid with the class invalid_line. It also
// returns an Item with an error, which has an ID if the line has a readable one.
//
// A line is an object of strict JSON (RFC 8259) in UTF-8, at most 200 levels deep. A
// repeated name is an error, because the intended value is unknown. This holds for the
// line and for objects whose members are translated: body, modelInput, request and
// translated objects in them.
func Parse(d Name, line []byte) (*Item, error) {
	it := &Item{dialect: d}
	var few [8]jsonl.Member // stays on the stack
	members, err := it.readLine(few[:0], line)
	if err == nil {
		err = it.parse(members)
	}
	return it, err
}

// parse reads the line's members.
func (it *Item) parse(members []jsonl.Member) error {
	switch it.dialect {
	case Plain:
		return it.parsePlain(members)
	case OpenAI:
		return it.parseOpenAI(members)
	case Bedrock:
		return it.parseBedrock(members)
	case Vertex:
		return it.parseVertex(members)
	}
	return fault.New(fault.Internal, "no dialect is named %q", it.dialect)
}

// readLine appends the members of the line. It also reads the id that ScanID finds, even
// if the line is invalid.
func (it *Item) readLine(members []jsonl.Member, line []byte) ([]jsonl.Member, error) {
	own := idName(it.dialect)
	var idErr error
	found := false
	count := 0
	o := jsonl.ReadObject(line)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		if count++; count <= maxMembers {
			members = append(members, m)
		}
		if !found && string(m.Name) == own {
			found = true
			idErr = it.setID(own, m.Value)
		}
	}
	switch {
	case !utf8.Valid(line):
		return nil, lineError("write the file in UTF-8", "the line is not valid UTF-8: byte %d", invalidAt(line))
	case o.Err() != nil && len(members) == 0 && !startsObject(line):
		return nil, lineError("write one object a line", "the line is not a JSON object: %s", o.Err())
	case o.Err() != nil:
		return nil, lineError("write one JSON object a line", "the line is not valid JSON: %s", o.Err())
	case count > maxMembers:
		return nil, tooMany("the line", count)
	}
	if err := unique("the line", members); err != nil {
		return nil, err
	}
	return members, idErr
}

// setID sets the line's id. A null counts as a missing id.
func (it *Item) setID(name string, raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	id, ok := readID(it.dialect, raw)
	switch {
	case string(raw) == `""`:
		return lineError("give it text, or leave it out", "%s is an empty string", name)
	case !ok && isNumber(raw) && it.dialect != Plain: // the error row shows it
		it.rawID = raw
		return wrongType(name, "a string", raw)
	case !ok && it.dialect == Plain:
		return wrongType(name, "a string or a number", raw)
	case !ok:
		return wrongType(name, "a string", raw)
	}
	it.ID, it.HasID, it.rawID = string(id), true, raw
	return nil
}

func startsObject(line []byte) bool {
	b := bytes.TrimLeft(line, " \t\r\n")
	return len(b) > 0 && b[0] == '{'
}

// objectOf reads the members of a value of the line, and rejects repeated names. what
// names the value in errors.
func objectOf(what string, raw []byte) ([]jsonl.Member, error) {
	o := jsonl.ReadKnownObject(raw)
	ms := make([]jsonl.Member, 0, 8)
	count := 0
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		if count++; count <= maxMembers {
			ms = append(ms, m)
		}
	}
	switch {
	case o.Err() != nil:
		return nil, wrongType(what, "an object", raw)
	case count > maxMembers:
		return nil, tooMany(what, count)
	}
	return ms, unique(what, ms)
}

// manyMembers is up to how many members comparing all pairs is the fastest search for
// repeated names.
const manyMembers = 24

// unique rejects repeated names among the members of what.
func unique(what string, ms []jsonl.Member) error {
	if len(ms) > manyMembers {
		seen := make(map[string]struct{}, len(ms))
		for _, m := range ms {
			if _, ok := seen[string(m.Name)]; ok {
				return repeated(what, m)
			}
			seen[string(m.Name)] = struct{}{}
		}
		return nil
	}
	for i, m := range ms {
		for _, earlier := range ms[:i] {
			if bytes.Equal(m.Name, earlier.Name) {
				return repeated(what, m)
			}
		}
	}
	return nil
}

// maxMembers is how many members an object may have.
const maxMembers = 1 << 14

func tooMany(what string, count int) error {
	return lineError("make it fewer, or nest them", "%s has %d members, more than %d", what, count, maxMembers)
}

func repeated(what string, m jsonl.Member) error {
	return lineError("keep one of them", "%s has %s more than once", what, clip(m.RawName))
}

// compact returns a member's value without white space between tokens. It copies only a
// value that has such white space.
func compact(m jsonl.Member) []byte {
	if m.Compact {
		return m.Value
	}
	return jsonl.Compact(make([]byte, 0, len(m.Value)), m.Value)
}
