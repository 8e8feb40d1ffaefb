package trials

import (
	"bytes"
	"unicode/utf8"

	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/jsonl"
)

// Task is a line of the input: what is tried under each variant.
type Task struct {
	ID       string
	Chain    string // of design.chain; "" if it belongs to no chain
	Messages []byte // compact; nil if it has a prompt
	// Rest is the line without its prompt and messages, compact: what its trials carry.
	Rest []byte
	line []byte
}

// maxID bounds the bytes of an id, and of the name of a chain.
const maxID = 512

// ParseTask reads a line. Its errors are Invalid and say what is wrong with the line. The task
// keeps a reference to it.
func ParseTask(line []byte, chain string) (t Task, err error) {
	if err := jsonl.Check(line); err != nil {
		return t, fault.WithKind(fault.Invalid, err, "it is not valid JSON")
	}
	if !utf8.Valid(line) {
		return t, fault.New(fault.Invalid, "it is not valid UTF-8: write the file in UTF-8")
	}
	if !bytes.HasPrefix(bytes.TrimLeft(line, " \t\r\n"), []byte("{")) {
		return t, fault.New(fault.Invalid, "it is not a JSON object: write {\"id\": …, \"prompt\": …}")
	}
	t.line = line
	seen, prompt := map[string]bool{}, false
	t.Rest = append(t.Rest, '{')
	o := jsonl.ReadObject(line)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		name := string(m.Name)
		if seen[name] {
			return t, fault.New(fault.Invalid, "it has the member %.64q twice", name)
		}
		seen[name] = true
		switch {
		case name == "prompt" && string(m.Value) != "null":
			prompt = true
			if b, isText := jsonl.Unquote(nil, m.Value); !isText || len(bytes.TrimSpace(b)) == 0 {
				return t, fault.New(fault.Invalid, "its prompt is not a text, or an empty one: write what is asked")
			}
		case name == "messages" && string(m.Value) != "null":
			t.Messages = jsonl.Compact(nil, m.Value)
		case name == "id":
			if t.ID, err = nameOf("id", m.Value); err != nil {
				return t, err
			}
		}
		if name == "prompt" || name == "messages" {
			continue
		}
		if len(t.Rest) > 1 {
			t.Rest = append(t.Rest, ',')
		}
		t.Rest = jsonl.Compact(append(jsonl.AppendQuoted(t.Rest, name), ':'), m.Value)
	}
	t.Rest = append(t.Rest, '}')
	if err := o.Err(); err != nil {
		return t, fault.WithKind(fault.Invalid, err, "it is not valid JSON")
	}
	switch {
	case t.ID == "":
		return t, fault.New(fault.Invalid, "it has no id: name the task")
	case t.Messages != nil && prompt:
		return t, fault.New(fault.Invalid, "it has both prompt and messages: remove one")
	}
	if v := grade.Lookup(line, chain); chain != "" && v != nil {
		t.Chain, err = nameOf(chain, v)
	}
	return t, err
}

// nameOf returns a string as it is, and a number or a boolean as it is written; "" for null.
func nameOf(member string, value []byte) (string, error) {
	s := string(value)
	switch value[0] {
	case '{', '[':
		return "", fault.New(fault.Invalid, "its %s is not a text", member)
	case 'n':
		return "", nil
	case '"':
		b, _ := jsonl.Unquote(nil, value)
		s = string(b)
	}
	switch {
	case len(s) > maxID:
		return "", fault.New(fault.Invalid, "its %s has %d bytes, at most %d are allowed", member, len(s), maxID)
	case !utf8.ValidString(s):
		return "", fault.New(fault.Invalid, "its %s has half of a surrogate pair, which is not a character: remove it",
			member)
	}
	return s, nil
}

// text returns what a placeholder of that name stands for in the messages about the task: a text
// as it is, any other value as JSON. It returns false if the task has no such member.
func (t Task) text(name string) (string, bool) {
	o := jsonl.ReadKnownObject(t.line)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		if string(m.Name) != name || string(m.Value) == "null" {
			continue
		}
		if b, isText := jsonl.Unquote(nil, m.Value); isText {
			return string(b), true
		}
		return string(jsonl.Compact(nil, m.Value)), true
	}
	return "", false
}
