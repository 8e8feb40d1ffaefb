package dialect

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"rollout/shared/jsonl"
)

// Item is one parsed line. Its slices are parts of the line, whose bytes must not change
// while the Item is used. It is safe for concurrent use.
type Item struct {
	// ID is the line's own id if HasID is true. A number (plain only) is its text. The
	// escape of a lone surrogate is kept as three bytes: see jsonl.Unquote.
	ID    string
	HasID bool
	// Endpoint is the kind of the request.
	Endpoint Endpoint
	// Request is the line's value of prompt, messages, body, modelInput or request,
	// without white space between tokens. The item id depends on it.
	Request []byte
	// N is the number of answers that the line asks for; 0 if it gives none.
	N int

	dialect Name
	rawID   []byte          // the id as written
	key     string          // the name of the member with the Request
	body    []jsonl.Member  // the members of the request's body, with OpenAI's names
	one     [1]jsonl.Member // storage for a body of one member
	extra   []jsonl.Member  // members of the line that come back, as written
	params  []byte          // canonical JSON of a plain row's parameters; nil without any
}

// Brings reports whether the line itself brought the member of the request.
func (it *Item) Brings(member string) bool {
	return member != "" && slices.ContainsFunc(it.body, func(m jsonl.Member) bool { return string(m.Name) == member })
}

// BringsQuoted reports whether the message quotes the name of a member of the request
// that the line itself brought, besides what every request has.
func (it *Item) BringsQuoted(message string) bool {
	return slices.ContainsFunc(it.body, func(m jsonl.Member) bool {
		name := string(m.Name)
		switch name {
		case "prompt", "messages", "model", "input":
			return false
		}
		return strings.Contains(message, `"`+name+`"`) || strings.Contains(message, "'"+name+"'") ||
			strings.Contains(message, "`"+name+"`")
	})
}

// Returned returns the names of the line's members that come back with the answer as they
// are.
func (it *Item) Returned() (names []string) {
	for _, m := range it.extra {
		names = append(names, string(m.Name))
	}
	return names
}

// maxAnswers is the largest number of answers to a line.
const maxAnswers = 128

// idName returns the name of the member with a line's own id.
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

// ScanID returns the id that Parse finds in a line: the value of the first member with
// the name of ids, if the line is valid up to there.
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

// readID decodes the value of an id. It returns false for a value that cannot be one.
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
