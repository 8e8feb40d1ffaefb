package openai

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rollout/gpuworker/engine/internal/rawjson"
)

// Bounds of what a server may send besides the known members. They are far above
// what servers send, and keep the joining of hostile pieces cheap.
const (
	maxFields = 256  // members of an object
	maxItems  = 1024 // elements of an array that are joined by their index
	maxDepth  = 8    // levels that are joined; deeper values replace each other
)

// object joins the members of an object that comes in pieces, without decoding
// them. Of texts, the pieces are concatenated; arrays are concatenated, or joined
// element by element if the elements have an index; objects are joined; of any other
// value the last counts. It is what OpenAI's own clients do, except that only members
// that hold text are concatenated: others are often repeated in every piece.
type object struct {
	fields []field
}

type field struct {
	name  string // as written between quotes
	kind  fieldKind
	value []byte     // raw: the value; text: the inside of the string; list: the elements
	sub   *object    // of kind joined
	items []*element // of kind indexed
}

type fieldKind byte

const (
	rawValue fieldKind = iota
	textValue
	listValue
	joinedObject
	indexedList
)

// element is an element of an array whose elements have an index.
type element struct {
	index int
	of    object
}

// isText reports whether pieces of a member are parts of one text.
func isText(name []byte) bool {
	switch string(name) {
	case "content", "text", "refusal", "arguments", "input", "data", "transcript", "thinking", "summary",
		"reasoning", "reasoning_content":
		return true
	}
	return false
}

// add joins a member. Null adds nothing.
func (o *object) add(name, v []byte, depth int) error {
	if rawjson.IsNull(v) {
		return nil
	}
	f, err := o.field(name)
	if err != nil {
		return err
	}
	return f.add(name, v, depth)
}

// set replaces a member.
func (o *object) set(name, v []byte) error {
	f, err := o.field(name)
	if err == nil {
		*f = field{name: f.name, value: append(f.value[:0], v...)}
	}
	return err
}

// field returns the member of a name, which may be new.
func (o *object) field(name []byte) (*field, error) {
	if f := o.find(name); f != nil {
		return f, nil
	}
	if len(o.fields) == maxFields {
		return nil, fmt.Errorf("%w: an object of more than %d members", errMalformed, maxFields)
	}
	o.fields = append(o.fields, field{name: string(name)})
	return &o.fields[len(o.fields)-1], nil
}

func (o *object) find(name []byte) *field {
	for i := range o.fields {
		if o.fields[i].name == string(name) {
			return &o.fields[i]
		}
	}
	return nil
}

func (f *field) add(name, v []byte, depth int) error {
	switch {
	case rawjson.IsString(v) && isText(name):
		if f.kind != textValue {
			*f = field{name: f.name, kind: textValue}
		}
		f.value = append(f.value, v[1:len(v)-1]...)
	case rawjson.IsObject(v) && depth < maxDepth:
		if f.kind != joinedObject {
			*f = field{name: f.name, kind: joinedObject, sub: &object{}}
		}
		return f.sub.addAll(v, depth+1)
	case rawjson.IsArray(v) && depth < maxDepth:
		return f.addList(v, depth)
	default:
		if f.kind != rawValue {
			*f = field{name: f.name}
		}
		f.value = append(f.value[:0], v...)
	}
	return nil
}

// addAll joins all members of an object.
func (o *object) addAll(v []byte, depth int) error {
	return rawjson.Members(v, func(name, v []byte) error { return o.add(name, v, depth) })
}

// addList joins an array.
func (f *field) addList(v []byte, depth int) error {
	if _, ok := firstIndex(v); ok && f.kind != listValue {
		if f.kind != indexedList {
			*f = field{name: f.name, kind: indexedList}
		}
		return rawjson.Elements(v, func(e []byte) error {
			index, _ := indexOf(e)
			for _, have := range f.items {
				if have.index == index {
					return have.of.addAll(e, depth+1)
				}
			}
			if len(f.items) == maxItems || !rawjson.IsObject(e) {
				return fmt.Errorf("%w: a list with an element %d of at most %d", errMalformed, index, maxItems)
			}
			added := &element{index: index}
			f.items = append(f.items, added)
			return added.of.addAll(e, depth+1)
		})
	}
	if f.kind != listValue {
		*f = field{name: f.name, kind: listValue}
	}
	f.value = appendElements(f.value, v)
	return nil
}

// appendElements appends the elements of an array to those before, with commas
// between.
func appendElements(dst, array []byte) []byte {
	elements := bytes.TrimSpace(array[1 : len(array)-1])
	if len(elements) > 0 && len(dst) > 0 {
		dst = append(dst, ',')
	}
	return append(dst, elements...)
}

// firstIndex returns the index of an array's first element, if that is an object
// with one.
func firstIndex(array []byte) (int, bool) {
	first, _, err := rawjson.Next(array[1:])
	if err != nil || !rawjson.IsObject(first) {
		return 0, false
	}
	return indexOf(first)
}

// indexOf returns the member index of an object, which may be a number or a number
// in a string.
func indexOf(object []byte) (index int, ok bool) {
	// An error ends the walk; the element is checked when it is joined.
	_ = rawjson.Members(object, func(name, v []byte) error {
		if string(name) != "index" {
			return nil
		}
		index, ok = asIndex(v)
		return errFound
	})
	return index, ok
}

// errFound ends a walk.
var errFound = errors.New("found")

// asIndex reads 1, "1" and 1.0.
func asIndex(v []byte) (int, bool) {
	f, err := strconv.ParseFloat(string(bytes.Trim(v, `"`)), 64)
	if err != nil || f < 0 || f > 1<<20 || f != float64(int(f)) {
		return 0, false
	}
	return int(f), true
}

// json renders the object, sorted by name, without empty strings, lists and objects
// among its own members, and without members that are not valid JSON for every
// decoder, such as an object with two members of one name. It is nil if nothing is
// left.
func (o *object) json() []byte {
	o.sort()
	var out []byte
	for i := range o.fields {
		f := &o.fields[i]
		if f.empty() {
			continue
		}
		member, ok := canonical(append(f.append([]byte{'{'}), '}'))
		if !ok {
			continue
		}
		if out == nil {
			out = []byte{'{'}
		} else {
			out = append(out, ',')
		}
		out = append(out, member[1:len(member)-1]...)
	}
	if out == nil {
		return nil
	}
	if out, ok := canonical(append(out, '}')); ok { // no name is there twice, once with escapes
		return out
	}
	return nil
}

func (o *object) sort() {
	slices.SortStableFunc(o.fields, func(a, b field) int { return strings.Compare(a.name, b.name) })
}

// append appends the object with all its members.
func (o *object) append(dst []byte) []byte {
	o.sort()
	dst = append(dst, '{')
	for i := range o.fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = o.fields[i].append(dst)
	}
	return append(dst, '}')
}

func (f *field) empty() bool {
	switch f.kind {
	case joinedObject:
		return len(f.sub.fields) == 0
	case indexedList:
		return len(f.items) == 0
	case rawValue:
		return string(f.value) == `""`
	}
	return len(f.value) == 0
}

// append appends the member: its name and its value.
func (f *field) append(dst []byte) []byte {
	dst = append(append(append(dst, '"'), f.name...), `":`...)
	switch f.kind {
	case textValue:
		return append(append(append(dst, '"'), f.value...), '"')
	case listValue:
		return append(append(append(dst, '['), f.value...), ']')
	case joinedObject:
		return f.sub.append(dst)
	case indexedList:
		slices.SortStableFunc(f.items, func(a, b *element) int { return a.index - b.index })
		dst = append(dst, '[')
		for i, it := range f.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = it.of.append(dst)
		}
		return append(dst, ']')
	}
	return append(dst, f.value...)
}
