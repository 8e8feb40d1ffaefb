package dialect

import (
	"bytes"
	"unicode/utf8"

	"rollout/shared/jsonl"
)

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
	rawID   []byte          // the id as written
	key     string          // the name of Request's member
	body    []jsonl.Member  // what the request's body says, in OpenAI's names
	one     [1]jsonl.Member // room for a body that says one thing
	extra   []jsonl.Member  // the members that are not ours, as written
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
