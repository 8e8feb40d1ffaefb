package dialect

import (
	"bytes"
	"fmt"
	"iter"

	"rollout/shared/jsonl"
)

// translation builds a chat request with OpenAI's names from a request of another
// format. It keeps the first error, and ignores everything after it.
type translation struct {
	body     []jsonl.Member
	messages []byte // the array without its closing bracket
	err      error
}

func (t *translation) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

// members returns the members of the object raw. After an error it returns none.
func (t *translation) members(what string, raw []byte) []jsonl.Member {
	if t.err != nil {
		return nil
	}
	ms, err := objectOf(what, raw)
	t.err = err
	return ms
}

// elements yields the elements of the array raw. After an error it yields none.
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

// set adds the member name with a value as written. A second one is an error.
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

// number adds the member name, whose value must be a number. It ignores a null.
func (t *translation) number(what, name string, value []byte) {
	switch {
	case string(value) == "null":
	case !isNumber(value):
		t.fail(wrongType(what, "a number", value))
	default:
		t.set(name, value)
	}
}

// stops adds the member stop, whose value must be an array of strings. It ignores a null.
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

// message adds a message. text is a JSON string as written.
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

// refuse fails with a member that a chat request cannot express.
func (t *translation) refuse(what string, m jsonl.Member) {
	t.fail(lineError("leave it out, or use the openai dialect", "%s.%s is not supported", what, clip(m.Name)))
}

// done sets the endpoint and the body of the item, or returns the first error.
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

// join joins JSON strings with a newline, as servers do with the parts of a message.
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

// at returns the name of an element for errors, such as messages[3].
func at(what string, i int) string { return fmt.Sprintf("%s[%d]", what, i) }
