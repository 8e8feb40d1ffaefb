package dialect

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

// Names lists the dialects.
func Names() []Name { return []Name{Plain, OpenAI, Bedrock, Vertex} }

// ParseName returns the dialect that s names.
func ParseName(s string) (Name, error) {
	for _, n := range Names() {
		if s == string(n) {
			return n, nil
		}
	}
	return "", &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("unknown dialect %q", s),
		Remedy: "use plain, openai, bedrock or vertex, or leave it out to have it detected"}
}

// Detect names the dialect of a file by the first line of its head that looks
// like one of them; Plain if none does. The head's last line may be cut off.
func Detect(head []byte) Name {
	head = bytes.TrimPrefix(head, []byte("\xEF\xBB\xBF"))
	for line := range bytes.Lines(head) {
		if n := shape(line); n != "" {
			return n
		}
	}
	return Plain
}

// shape names the dialect of a line by its members; "" if they say nothing.
func shape(line []byte) Name {
	has := map[string]bool{}
	o := jsonl.ReadObject(line)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		has[string(m.Name)] = true
	}
	switch {
	case has["prompt"] || has["messages"]:
		return Plain
	case has["custom_id"] || has["body"]:
		return OpenAI
	case has["modelInput"] || has["recordId"]:
		return Bedrock
	case has["request"]:
		return Vertex
	}
	return ""
}

// Item is one line that asks for answers. It refers to the line's bytes, which
// must not change as long as it is used. It is safe for concurrent use.
type Item struct {
	// ID is the line's own id; "" if it has none. A number (plain only) is its
	// text. The escape of a lone surrogate is kept as three bytes: see
	// jsonl.Unquote.
	ID    string
	HasID bool
	// Endpoint is where the request goes.
	Endpoint Endpoint
	// Request is the line's own value of prompt, messages, body, modelInput or
	// request, without white space between tokens: a part of the item's id.
	Request []byte
	// N is the number of answers that the line asks for; 0 if it does not say.
	N int

	dialect Name
	rawID   []byte         // the id as written
	key     string         // the name of Request's member
	body    []jsonl.Member // what the request's body says, in OpenAI's names
	extra   []jsonl.Member // the members that are not ours, as written
}

// maxAnswers bounds n.
const maxAnswers = 128

// idName is the member that holds a line's own id.
func idName(d Name) string {
	switch d {
	case OpenAI:
		return "custom_id"
	case Bedrock:
		return "recordId"
	case Vertex:
		return "key"
	}
	return "id"
}

// ScanID returns a line's own id, as Parse would: the value of the first
// member of its name, if the line is well formed up to there.
func ScanID(d Name, line []byte) (id []byte, ok bool) {
	name := idName(d)
	o := jsonl.ReadObject(line)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		if string(m.Name) == name {
			return readID(d, m.Value)
		}
	}
	return nil, false
}

// readID decodes the value of an id.
func readID(d Name, raw []byte) (id []byte, ok bool) {
	switch {
	case raw[0] == '"':
		if len(raw) == 2 || !utf8.Valid(raw) {
			return nil, false
		}
		if bytes.IndexByte(raw, '\\') < 0 {
			return raw[1 : len(raw)-1], true
		}
		return jsonl.Unquote(nil, raw)
	case d == Plain && isNumber(raw):
		return raw, true
	}
	return nil, false
}

func isNumber(raw []byte) bool { return raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9' }

// lineError is the fault of a line that is no request.
func lineError(remedy, format string, args ...any) error {
	return &fault.Error{Kind: fault.Invalid, Class: fault.InvalidLine, Err: fmt.Errorf(format, args...), Remedy: remedy}
}

// Parse reads one line. Errors are Invalid, of class invalid_line; the Item
// that comes with them has an ID if the line has a readable one.
//
// Lines are objects of strict JSON (RFC 8259) in UTF-8, at most 200 levels
// deep. A name that is repeated in the line, or in an object whose members are
// rewritten (body, modelInput, request and what they hold that is translated),
// is an error: which value was meant can't be known.
func Parse(d Name, line []byte) (*Item, error) {
	it := &Item{dialect: d}
	members, err := it.readLine(line)
	if err != nil {
		return it, err
	}
	switch d {
	case Plain:
		err = it.parsePlain(members)
	case OpenAI:
		err = it.parseOpenAI(members)
	case Bedrock:
		err = it.parseBedrock(members)
	case Vertex:
		err = it.parseVertex(members)
	default:
		err = fault.New(fault.Internal, "no dialect is named %q", d)
	}
	return it, err
}

// readLine reads the line's members and, whatever else is wrong with it, its
// id.
func (it *Item) readLine(line []byte) ([]jsonl.Member, error) {
	own := idName(it.dialect)
	members := make([]jsonl.Member, 0, 8)
	var idErr error
	found := false
	o := jsonl.ReadObject(line)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		members = append(members, m)
		if !found && string(m.Name) == own {
			found = true
			idErr = it.setID(own, m.Value)
		}
	}
	switch {
	case !utf8.Valid(line):
		return nil, lineError("write the file in UTF-8", "the line is not valid UTF-8: byte %d", invalidAt(line))
	case o.Err() != nil && len(members) == 0 && !startsObject(line):
		return nil, lineError("write one object a line", "the line is not a JSON object: %s", cause(o.Err()))
	case o.Err() != nil:
		return nil, lineError("write one JSON object a line", "the line is not valid JSON: %s", cause(o.Err()))
	}
	if err := unique("the line", members); err != nil {
		return nil, err
	}
	return members, idErr
}

// setID keeps the line's id. A null counts as none.
func (it *Item) setID(name string, raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	id, ok := readID(it.dialect, raw)
	if !ok {
		return lineError("make it a string", "%s is not a string that is not empty", name)
	}
	it.ID, it.HasID, it.rawID = string(id), true, raw
	return nil
}

func startsObject(line []byte) bool {
	b := bytes.TrimLeft(line, " \t\r\n")
	return len(b) > 0 && b[0] == '{'
}

// invalidAt is the index of the first byte that is no UTF-8.
func invalidAt(b []byte) int {
	for i := 0; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return len(b)
}

// cause is the text of a fault of package jsonl.
func cause(err error) string { return err.Error() }

// manyMembers is where searching for repeated names by comparing all pairs
// stops to be the fastest way.
const manyMembers = 24

// unique refuses repeated names in what, which has the members ms.
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

func repeated(what string, m jsonl.Member) error {
	return lineError("keep one of them", "%s has %s more than once", what, clip(m.RawName))
}

// clip shortens what a message shows of the input.
func clip(b []byte) string {
	const most = 64
	if len(b) <= most {
		return string(b)
	}
	return string(bytes.ToValidUTF8(b[:most], nil)) + "…"
}

// compact returns raw without white space between tokens, without a copy where
// there is none.
func compact(raw []byte) []byte {
	if jsonl.IsCompact(raw) {
		return raw
	}
	return jsonl.Compact(make([]byte, 0, len(raw)), raw)
}

// objectOf reads the members of raw, which what names in messages, and refuses
// repeated names.
func objectOf(what string, raw []byte) ([]jsonl.Member, error) {
	o := jsonl.ReadObject(raw)
	ms := make([]jsonl.Member, 0, 8)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		ms = append(ms, m)
	}
	if o.Err() != nil {
		return nil, wrongType(what, "an object", raw)
	}
	return ms, unique(what, ms)
}

// wrongType says that what is not of the wanted type.
func wrongType(what, want string, raw []byte) error {
	return lineError("make it "+want, "%s is %s, not %s", what, typeOf(raw), want)
}

func typeOf(raw []byte) string {
	switch raw[0] {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}
