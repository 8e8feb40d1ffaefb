package agentproxy

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"rollout/shared/jsonl"
)

// violation is a part of a request that agents may not send. It is an error.
type violation struct {
	member  string // its path. Example: "tools[0].type"; "" is the value itself
	problem string
	remedy  string // an instruction
}

// Error implements error.
func (v *violation) Error() string {
	return fmt.Sprintf("agents may not send %s: %s: %s", v.member, v.problem, v.remedy)
}

// in prepends the name of what the violation stands in.
func (v *violation) in(name string) *violation {
	if v.member != "" && v.member[0] != '[' {
		name += "."
	}
	v.member = name + v.member
	return v
}

// shape says what is wrong with a value; nil if agents may send it. The value is valid JSON, and
// not null, which every server takes for a member that is absent.
type shape func(value []byte) *violation

func wrong(remedy, format string, args ...any) *violation {
	return &violation{problem: fmt.Sprintf(format, args...), remedy: remedy}
}

// isNull reports whether the value is null.
func isNull(value []byte) bool { return string(value) == "null" }

// scalar is a text, a number or a boolean.
func scalar(value []byte) *violation {
	if value[0] == '{' || value[0] == '[' {
		return wrong("send a text, a number, true or false", "it is a list or an object")
	}
	return nil
}

// words are some texts.
func words(allowed ...string) shape {
	return func(value []byte) *violation {
		text, isText := jsonl.Unquote(nil, value)
		if isText && slices.Contains(allowed, string(text)) {
			return nil
		}
		return wrong("send "+strings.Join(allowed, " or "), "its value is %.64q", value)
	}
}

// textOr is a text, or of another shape.
func textOr(other shape) shape {
	return func(value []byte) *violation {
		if value[0] == '"' {
			return nil
		}
		return other(value)
	}
}

// scalarOr is a scalar, or of another shape.
func scalarOr(other shape) shape {
	return func(value []byte) *violation {
		if scalar(value) == nil {
			return nil
		}
		return other(value)
	}
}

// list has elements of one shape.
func list(of shape) shape {
	return func(value []byte) *violation {
		if value[0] != '[' {
			return wrong("send a list", "it is not a list")
		}
		a := jsonl.ReadKnownArray(value)
		for i := 0; ; i++ {
			element, ok := a.Next()
			if !ok {
				return unread(a.Err())
			}
			if isNull(element) {
				continue
			}
			if v := of(element); v != nil {
				return v.in(fmt.Sprintf("[%d]", i))
			}
		}
	}
}

// unread refuses a value of which not everything was read: it is nested too deep.
func unread(err error) *violation {
	if err == nil {
		return nil
	}
	return wrong("send a flatter value", "it can't be read: %v", err)
}

// empty is a list without elements.
func empty(value []byte) *violation {
	return list(func([]byte) *violation { return wrong("leave it out", "the list is not empty") })(value)
}

// object has these members at most, each once: a server may take the other one of two.
func object(members map[string]shape) shape {
	return func(value []byte) *violation {
		return eachMember(value, func(name string) shape { return members[name] })
	}
}

// dictionary is an object with members of any names and of one shape.
func dictionary(of shape) shape {
	return func(value []byte) *violation {
		return eachMember(value, func(string) shape { return of })
	}
}

// byType is an object whose member "type" says which members it may have; other is the type of an
// object that does not say it, "" if it must.
func byType(other string, types map[string]map[string]shape) shape {
	return func(value []byte) *violation {
		if value[0] != '{' {
			return wrong("send an object", "it is not an object")
		}
		kind := other
		o := jsonl.ReadKnownObject(value)
		for m, ok := o.Next(); ok; m, ok = o.Next() {
			if string(m.Name) == "type" && !isNull(m.Value) {
				text, _ := jsonl.Unquote(nil, m.Value)
				kind = string(text)
			}
		}
		members, known := types[kind]
		if !known {
			names := make([]string, 0, len(types))
			for name := range types {
				names = append(names, name)
			}
			slices.Sort(names)
			return wrong("use "+strings.Join(names, ", "), "its type is %.64q, and agents have no network but the model",
				kind).in("type")
		}
		return eachMember(value, func(name string) shape {
			if name == "type" {
				return scalar
			}
			return members[name]
		})
	}
}

// eachMember checks the members of an object; shapeOf returns nil for one that it may not have.
func eachMember(value []byte, shapeOf func(name string) shape) *violation {
	if value[0] != '{' {
		return wrong("send an object", "it is not an object")
	}
	seen := map[string]bool{}
	o := jsonl.ReadKnownObject(value)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		name := string(m.Name)
		if seen[name] {
			return wrong("send it once", "the member stands there twice").in(named(name))
		}
		seen[name] = true
		of := shapeOf(name)
		switch {
		case isNull(m.Value):
		case of == nil:
			return wrong("leave it out", "it is not among the members that agents may send").in(named(name))
		default:
			if v := of(m.Value); v != nil {
				return v.in(named(name))
			}
		}
	}
	return unread(o.Err())
}

// named returns a member's name as it stands in a message.
func named(name string) string {
	const most = 64
	return strings.ToValidUTF8(name[:min(len(name), most)], "\uFFFD")
}

// maxSchemaDepth bounds how deep the JSON Schemas of tools and answers are.
const maxSchemaDepth = 64

// schema is a JSON Schema that refers to nothing but itself: some servers fetch what it refers to.
func schema(value []byte) *violation { return schemaAt(value, maxSchemaDepth) }

func schemaAt(value []byte, depth int) *violation {
	if depth == 0 {
		return wrong("use a flatter schema", "it is deeper than %d", maxSchemaDepth)
	}
	switch value[0] {
	case '[':
		return list(func(v []byte) *violation { return schemaAt(v, depth-1) })(value)
	case '{':
		o := jsonl.ReadKnownObject(value)
		for m, ok := o.Next(); ok; m, ok = o.Next() {
			name := string(m.Name)
			check := schemaAt
			if strings.HasSuffix(strings.ToLower(name), "ref") && strings.HasPrefix(name, "$") {
				check = localAt
			}
			if v := check(m.Value, depth-1); v != nil {
				return v.in(named(name))
			}
		}
		return unread(o.Err())
	}
	return nil
}

// localAt is a reference within a schema. Properties may have the name of one.
func localAt(value []byte, depth int) *violation {
	if target, isText := jsonl.Unquote(nil, value); isText && !bytes.HasPrefix(target, []byte("#")) {
		return wrong("put the schema into $defs, and refer to it with #/$defs/NAME", "it refers to %.64q", target)
	}
	return schemaAt(value, depth)
}

// schemaText is a JSON Schema, or a text that has one.
func schemaText(value []byte) *violation {
	text, isText := jsonl.Unquote(nil, value)
	if !isText {
		return schema(value)
	}
	if text = bytes.TrimSpace(text); !json.Valid(text) {
		return wrong("send a JSON Schema", "it is not valid JSON")
	}
	return schema(text)
}

// The media types that agents may send.
var (
	images    = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}
	documents = []string{"application/pdf"}
	sounds    = []string{"audio/wave", "audio/mpeg"}
)

// dataURL is a data: URL of one of the media types. Its first bytes must be those of such a medium:
// a decoder that finds the format itself would read the URLs in a playlist.
func dataURL(types []string) shape {
	return func(value []byte) *violation {
		text, isText := jsonl.Unquote(nil, value)
		head, data, ok := strings.Cut(string(text), ",")
		media, isData := strings.CutPrefix(head, "data:")
		media, isBase64 := strings.CutSuffix(media, ";base64")
		if !isText || !ok || !isData || !isBase64 || !slices.Contains(types, media) {
			return wrong("send the file itself as data:TYPE;base64,… with the type "+strings.Join(types, " or "),
				"%.64q is not a data: URL of a file that agents may send", text)
		}
		return medium(data, []string{media})
	}
}

// base64Data is a text with a medium of one of the types.
func base64Data(types []string) shape {
	return func(value []byte) *violation {
		text, isText := jsonl.Unquote(nil, value)
		if !isText {
			return wrong("send it as base64", "it is not a text")
		}
		return medium(string(text), types)
	}
}

// isMPEGFrame reports whether data begins with a frame of MPEG audio.
func isMPEGFrame(b []byte) bool { return len(b) > 1 && b[0] == 0xFF && b[1]&0xE0 == 0xE0 }

// isTagged reports whether base64 data has a frame behind its ID3v2 tags: a decoder skips them, and
// may find a playlist there.
func isTagged(data string) bool {
	const header = 10
	b, err := base64.StdEncoding.DecodeString(data)
	for err == nil && len(b) >= header && bytes.HasPrefix(b, []byte("ID3")) {
		size := header // of four bytes with 7 bits each
		size += int(b[6]&0x7F)<<21 | int(b[7]&0x7F)<<14 | int(b[8]&0x7F)<<7 | int(b[9]&0x7F)
		b = b[min(size, len(b)):]
	}
	return err == nil && isMPEGFrame(b)
}

// medium checks data in base64 against the types that it may have.
func medium(data string, types []string) *violation {
	const told = 512 / 3 * 4 // what tells the type
	b, err := base64.StdEncoding.DecodeString(data[:min(len(data), told)])
	if err != nil {
		return wrong("send it as base64", "its data is not valid base64")
	}
	found := http.DetectContentType(b)
	switch isFrame := isMPEGFrame(b); {
	case isFrame && !strings.HasPrefix(found, "image/"):
		found = "audio/mpeg" // a frame without a tag before it
	case found == "audio/mpeg" && !isFrame && !isTagged(data):
		return wrong("send it without a tag, or with one before its first frame", "no sound follows its tag")
	}
	if !slices.Contains(types, found) {
		return wrong("send "+strings.Join(types, " or "), "its data is %s", found)
	}
	return nil
}
