package dialect

import (
	"bytes"
	"fmt"
	"iter"

	"rollout/shared/jsonl"
)

// translation gathers a chat request, in OpenAI's names, out of a request of
// another shape. It keeps the first error and ignores what follows it.
type translation struct {
	body     []jsonl.Member
	messages []byte // the array, unclosed
	err      error
}

func (t *translation) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

// members reads the object raw.
func (t *translation) members(what string, raw []byte) []jsonl.Member {
	if t.err != nil {
		return nil
	}
	ms, err := objectOf(what, raw)
	t.err = err
	return ms
}

// elements reads the array raw; after an error, none.
func (t *translation) elements(what string, raw []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		if t.err != nil {
			return
		}
		if raw[0] != '[' {
			t.err = wrongType(what, "an array", raw)
			return
		}
		a := jsonl.ReadKnownArray(raw)
		i := 0
		for e, ok := a.Next(); ok && t.err == nil && yield(i, e); e, ok = a.Next() {
			i++
		}
	}
}

// set says name, once, as written.
func (t *translation) set(name string, value []byte) {
	for _, m := range t.body {
		if string(m.Name) == name {
			t.fail(lineError("keep one of them", "the request says %s twice, in two spellings", name))
			return
		}
	}
	quoted := []byte(`"` + name + `"`)
	t.body = append(t.body, jsonl.Member{Name: quoted[1 : len(quoted)-1], RawName: quoted, Value: value})
}

// number says name if value is a number; a null says nothing.
func (t *translation) number(what, name string, value []byte) {
	switch {
	case string(value) == "null":
	case !isNumber(value):
		t.fail(wrongType(what, "a number", value))
	default:
		t.set(name, value)
	}
}

// stops says stop if value is an array of strings; a null says nothing.
func (t *translation) stops(what string, value []byte) {
	if string(value) == "null" {
		return
	}
	for _, e := range t.elements(what, value) {
		if e[0] != '"' {
			t.fail(wrongType("an element of "+what, "a string", e))
		}
	}
	t.set("stop", value)
}

// message adds a message of text, which is a JSON string as written.
func (t *translation) message(role string, text []byte) {
	if t.messages == nil {
		t.messages = append(t.messages, '[')
	} else {
		t.messages = append(t.messages, ',')
	}
	t.messages = append(t.messages, `{"role":"`...)
	t.messages = append(t.messages, role...)
	t.messages = append(t.messages, `","content":`...)
	t.messages = append(t.messages, text...)
	t.messages = append(t.messages, '}')
}

// refuse names a member that can't be honoured.
func (t *translation) refuse(what string, m jsonl.Member) {
	t.fail(lineError("leave it out, or use the openai dialect", "%s.%s is not supported", what, clip(m.Name)))
}

// done closes the messages and hands the body over.
func (t *translation) done(it *Item) error {
	if t.err != nil {
		return t.err
	}
	quoted := []byte(`"messages"`)
	first := jsonl.Member{Name: quoted[1 : len(quoted)-1], RawName: quoted, Value: append(t.messages, ']')}
	it.Endpoint = Chat
	it.body = append([]jsonl.Member{first}, t.body...)
	return nil
}

// join makes one JSON string of several, separated by a newline, as servers do
// with the parts of a message.
func join(texts [][]byte) []byte {
	if len(texts) == 1 {
		return texts[0]
	}
	inner := make([][]byte, len(texts))
	for i, t := range texts {
		inner[i] = t[1 : len(t)-1]
	}
	out := append([]byte{'"'}, bytes.Join(inner, []byte(`\n`))...)
	return append(out, '"')
}

// at names an element in messages: messages[3].
func at(what string, i int) string { return fmt.Sprintf("%s[%d]", what, i) }
