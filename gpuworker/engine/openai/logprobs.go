package openai

import (
	"fmt"

	"rollout/gpuworker/engine/internal/rawjson"
)

// maxLogprobMembers bounds the members of an answer's logprobs. Servers send at
// most four (tokens, token_logprobs, top_logprobs, text_offset).
const maxLogprobMembers = 16

// logprobs joins the log probabilities of an answer's chunks without decoding
// them. It concatenates arrays member by member; of other values the last counts.
// That works for both endpoints.
type logprobs struct {
	members []logprobMember
}

type logprobMember struct {
	name  string // as written between quotes
	array bool
	value []byte // the array's elements without brackets, or the value
}

// add adds a chunk's object.
func (l *logprobs) add(object []byte) error {
	return rawjson.Members(object, func(name, v []byte) error {
		m, err := l.member(name)
		if err == nil {
			m.add(v)
		}
		return err
	})
}

func (l *logprobs) member(name []byte) (*logprobMember, error) {
	for i := range l.members {
		if l.members[i].name == string(name) {
			return &l.members[i], nil
		}
	}
	if len(l.members) == maxLogprobMembers {
		return nil, fmt.Errorf("%w: its logprobs have more than %d members", errMalformed, maxLogprobMembers)
	}
	l.members = append(l.members, logprobMember{name: string(name)})
	return &l.members[len(l.members)-1], nil
}

func (m *logprobMember) add(v []byte) {
	switch {
	case rawjson.IsNull(v) && m.value != nil:
	case !rawjson.IsArray(v):
		m.array, m.value = false, append(m.value[:0], v...)
	default:
		if !m.array {
			m.array, m.value = true, m.value[:0]
		}
		m.value = appendElements(m.value, v)
	}
}

// json renders the joined object. It returns nil without one, or if it is not
// valid JSON for every decoder, such as with two members of one name.
func (l *logprobs) json() []byte {
	if len(l.members) == 0 {
		return nil
	}
	out := []byte{'{'}
	for i, m := range l.members {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, '"'), m.name...), `":`...)
		if m.array {
			out = append(append(append(out, '['), m.value...), ']')
		} else {
			out = append(out, m.value...)
		}
	}
	out, ok := canonical(append(out, '}'))
	if !ok {
		return nil
	}
	return out
}
