package jsonl

// Member is one member of an object. Its slices are parts of the object's text.
type Member struct {
	Name    []byte // decoded
	RawName []byte // as written, with its quotes
	Value   []byte // as written, without white space around it
	Compact bool   // Value has no white space between its tokens
}

// Object reads the members of an object, in order, repeated names included.
type Object struct {
	walker
	i    int
	open bool
	err  error
}

// ReadObject starts reading raw, which must be one object with optional white space
// around it.
func ReadObject(raw []byte) Object { return readObject(walker{b: raw}) }

// ReadKnownObject is a faster ReadObject for text that is known to be valid JSON: an
// object, or a value in it, that was read or checked before. For other text its result
// is undefined.
func ReadKnownObject(raw []byte) Object { return readObject(walker{b: raw, known: true}) }

func readObject(w walker) Object {
	raw := w.b
	i := space(raw, 0)
	if i >= len(raw) || raw[i] != '{' {
		return Object{err: unexpected(raw, i, "an object")}
	}
	o := Object{walker: w, i: space(raw, i+1), open: true}
	if o.i < len(raw) && raw[o.i] == '}' {
		o.finish()
	}
	return o
}

// Next returns the next member, and false at the end or at the first syntax error. All
// returned members are complete.
func (o *Object) Next() (m Member, ok bool) {
	if !o.open {
		return m, false
	}
	end, escaped, next, err := o.name(o.i)
	if err != nil {
		return m, o.fail(err)
	}
	m.RawName = o.b[o.i:end]
	m.Name = m.RawName[1 : len(m.RawName)-1]
	if escaped {
		m.Name, _ = Unquote(nil, m.RawName)
	}
	o.spaced = false
	end, err = o.value(next, 1)
	if err != nil {
		return m, o.fail(err)
	}
	m.Value, m.Compact = o.b[next:end], !o.spaced
	o.i = space(o.b, end)
	switch {
	case o.i < len(o.b) && o.b[o.i] == ',':
		o.i = space(o.b, o.i+1)
	case o.i < len(o.b) && o.b[o.i] == '}':
		o.finish()
	default: // this member is complete; the next call reports the error
		o.fail(unexpected(o.b, o.i, "',' or '}'"))
	}
	return m, true
}

// Err returns the first syntax error. It is nil if the object was read to its end and
// only white space follows.
func (o *Object) Err() error { return o.err }

// finish reads the closing brace at i.
func (o *Object) finish() {
	o.open = false
	if end := space(o.b, o.i+1); end < len(o.b) {
		o.err = unexpected(o.b, end, "the end")
	}
}

func (o *Object) fail(err error) bool {
	o.open, o.err = false, err
	return false
}

// Array reads the elements of an array, in order.
type Array struct {
	walker
	i    int
	open bool
	err  error
}

// ReadKnownArray starts reading raw, which must be one array with optional white space
// around it, known to be valid: see ReadKnownObject.
func ReadKnownArray(raw []byte) Array {
	i := space(raw, 0)
	if i >= len(raw) || raw[i] != '[' {
		return Array{err: unexpected(raw, i, "an array")}
	}
	a := Array{walker: walker{b: raw, known: true}, i: space(raw, i+1), open: true}
	if a.i < len(raw) && raw[a.i] == ']' {
		a.finish()
	}
	return a
}

// Next returns the next element as written, and false at the end or at the first syntax
// error.
func (a *Array) Next() (element []byte, ok bool) {
	if !a.open {
		return nil, false
	}
	start := a.i
	end, err := a.value(start, 1)
	if err != nil {
		return nil, a.fail(err)
	}
	a.i = space(a.b, end)
	switch {
	case a.i < len(a.b) && a.b[a.i] == ',':
		a.i = space(a.b, a.i+1)
	case a.i < len(a.b) && a.b[a.i] == ']':
		a.finish()
	default: // this element is complete; the next call reports the error
		a.fail(unexpected(a.b, a.i, "',' or ']'"))
	}
	return a.b[start:end], true
}

// Err returns the first syntax error. It is nil if the array was read to its end and only
// white space follows.
func (a *Array) Err() error { return a.err }

// finish reads the closing bracket at i.
func (a *Array) finish() {
	a.open = false
	if end := space(a.b, a.i+1); end < len(a.b) {
		a.err = unexpected(a.b, end, "the end")
	}
}

func (a *Array) fail(err error) bool {
	a.open, a.err = false, err
	return false
}
