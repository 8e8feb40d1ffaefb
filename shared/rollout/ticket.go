package rollout

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

// Ticket is one case of a mission.
type Ticket struct {
	Group    string
	Mission  string
	Label    string // the known verdict; "" if there is none
	Content  string
	Messages json.RawMessage // in the place of Content; nil if there are none
	// Rest is the ticket's line without its text, compact: what its items carry.
	Rest []byte
}

// maxGroup bounds the bytes of a group, and of a label.
const maxGroup = 512

// Key identifies a ticket: by its group and its label.
func (t Ticket) Key() identity.ContentID {
	b := jsonl.AppendString([]byte{'['}, t.Group)
	b = jsonl.AppendString(append(b, ','), t.Label)
	return identity.Content(append(b, ']'))
}

// ParseTicket reads a line. Missions are those of the run. Its errors are Invalid and say
// what is wrong with the line.
func ParseTicket(line []byte, missions []config.Mission) (t Ticket, err error) {
	if err := jsonl.Check(line); err != nil {
		return t, fault.WithKind(fault.Invalid, err, "it is not valid JSON")
	}
	if !utf8.Valid(line) {
		return t, fault.New(fault.Invalid, "it is not valid UTF-8: write the file in UTF-8")
	}
	if !bytes.HasPrefix(bytes.TrimLeft(line, " \t\r\n"), []byte("{")) {
		return t, fault.New(fault.Invalid, "it is not a JSON object: write {\"group_id\": …, \"mission\": …, \"content\": …}")
	}
	seen, hasContent := map[string]bool{}, false
	t.Rest = append(t.Rest, '{')
	o := jsonl.ReadObject(line)
	for m, ok := o.Next(); ok && err == nil; m, ok = o.Next() {
		name := string(m.Name)
		if seen[name] {
			return t, fault.New(fault.Invalid, "it has the member %.64q twice", name)
		}
		seen[name] = true
		switch name {
		case "group_id":
			t.Group, err = scalar(name, m.Value)
		case "mission":
			t.Mission, err = scalar(name, m.Value)
		case "label":
			t.Label, err = scalar(name, m.Value)
		case "content":
			if hasContent = string(m.Value) != "null"; hasContent {
				t.Content, err = textOf(name, m.Value)
			}
		case "messages":
			if string(m.Value) != "null" {
				t.Messages = jsonl.Compact(nil, m.Value)
			}
		}
		if name != "content" && name != "messages" {
			if len(t.Rest) > 1 {
				t.Rest = append(t.Rest, ',')
			}
			t.Rest = jsonl.Compact(append(jsonl.AppendQuoted(t.Rest, name), ':'), m.Value)
		}
	}
	t.Rest = append(t.Rest, '}')
	if err = cmp.Or(err, o.Err()); err != nil {
		return t, err
	}
	return t, t.check(missions, hasContent)
}

func (t *Ticket) check(missions []config.Mission, hasContent bool) error {
	switch {
	case t.Group == "":
		return fault.New(fault.Invalid, "it has no group_id: name the case")
	case t.Messages != nil && hasContent:
		return fault.New(fault.Invalid, "it has both content and messages: remove one")
	case t.Messages == nil && strings.TrimSpace(t.Content) == "":
		return fault.New(fault.Invalid, "it has no content: write what shall be judged, or messages")
	case t.Messages != nil && t.Messages[0] != '[':
		return fault.New(fault.Invalid, "its messages are not a list")
	case string(t.Messages) == "[]":
		return fault.New(fault.Invalid, "its messages are an empty list: give at least one")
	case t.Mission == "" && len(missions) == 1:
		t.Mission = missions[0].Name
	}
	if t.Mission == "" {
		return fault.New(fault.Invalid, "it has no mission: name one of the %d in the config", len(missions))
	}
	if !slices.ContainsFunc(missions, func(m config.Mission) bool { return m.Name == t.Mission }) {
		return fault.New(fault.Invalid, "its mission %.64q has no table [[mission]] in the config", t.Mission)
	}
	return nil
}

// textOf returns the value of a member that is text. Lone surrogates in it stay: see
// jsonl.Unquote.
func textOf(name string, value []byte) (string, error) {
	b, ok := jsonl.Unquote(nil, value)
	if !ok {
		return "", fault.New(fault.Invalid, "its %s is not text", name)
	}
	return string(b), nil
}

// scalar returns a string as it is, and a number or a boolean as it is written; "" for
// null.
func scalar(name string, value []byte) (s string, err error) {
	switch value[0] {
	case '"':
		s, err = textOf(name, value)
	case '{', '[':
		return "", fault.New(fault.Invalid, "its %s is not text", name)
	case 'n':
		return "", nil
	default:
		s = string(value)
	}
	switch {
	case err != nil:
		return "", err
	case len(s) > maxGroup:
		return "", fault.New(fault.Invalid, "its %s has %d bytes, at most %d are allowed", name, len(s), maxGroup)
	case !utf8.ValidString(s):
		return "", fault.New(fault.Invalid, "its %s has half of a surrogate pair, which is not a character: remove it", name)
	}
	return s, nil
}
