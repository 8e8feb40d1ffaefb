package openai

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// maxLogprobMembers bounds the lists of an answer's log probabilities; servers
// have at most four (tokens, token_logprobs, top_logprobs, text_offset).
const maxLogprobMembers = 16

// logprobs joins the log probabilities of an answer's chunks without decoding
// them: member by member, arrays are concatenated, and of anything else the
// last counts. So it works for both endpoints.
type logprobs struct {
	members []logprobMember
}

type logprobMember struct {
	name  string
	list  bool
	value []byte // the array's elements without brackets, or the value
}

// add adds a chunk's object.
func (l *logprobs) add(object jsontext.Value) error {
	d := jsontext.NewDecoder(bytes.NewBuffer(object), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	if _, err := d.ReadToken(); err != nil {
		return malformed(err, object)
	}
	for d.PeekKind() == jsontext.KindString {
		name, err := d.ReadToken()
		if err != nil {
			return malformed(err, object)
		}
		m, err := l.member(name.String())
		if err != nil {
			return err
		}
		v, err := d.ReadValue()
		if err != nil {
			return malformed(err, object)
		}
		m.add(v)
	}
	return nil
}

func (l *logprobs) member(name string) (*logprobMember, error) {
	for i := range l.members {
		if l.members[i].name == name {
			return &l.members[i], nil
		}
	}
	if len(l.members) == maxLogprobMembers {
		return nil, fmt.Errorf("%w: its logprobs have more than %d members", errMalformed, maxLogprobMembers)
	}
	l.members = append(l.members, logprobMember{name: name})
	return &l.members[len(l.members)-1], nil
}

func (m *logprobMember) add(v jsontext.Value) {
	switch {
	case v.Kind() == jsontext.KindNull && m.value != nil:
	case v.Kind() != jsontext.KindBeginArray:
		m.list, m.value = false, append(m.value[:0], v...)
	default:
		if !m.list {
			m.list, m.value = true, m.value[:0]
		}
		elements := bytes.TrimSpace(v[1 : len(v)-1])
		if len(elements) > 0 && len(m.value) > 0 {
			m.value = append(m.value, ',')
		}
		m.value = append(m.value, elements...)
	}
}

// json renders the joined object; nil if there is none, or if it has two
// members of one name somewhere, which no encoder would take.
func (l *logprobs) json() []byte {
	if len(l.members) == 0 {
		return nil
	}
	out := []byte{'{'}
	for i, m := range l.members {
		if i > 0 {
			out = append(out, ',')
		}
		out, _ = jsontext.AppendQuote(out, m.name) // invalid UTF-8 is written as U+FFFD
		out = append(out, ':')
		if m.list {
			out = append(append(append(out, '['), m.value...), ']')
		} else {
			out = append(out, m.value...)
		}
	}
	out, ok := tidy(append(out, '}'))
	if !ok {
		return nil
	}
	return out
}
