package openai

import "bytes"

// envelope is the part that all pieces of a stream have in common, around the text
// that each adds. Servers repeat a few hundred bytes around every token. A piece
// with the known envelope need not be parsed, which is most of what an answer
// costs its client.
type envelope struct {
	head, tail []byte // the piece before and after the text's string
	known      bool
}

// maxEnvelope bounds the bytes of an envelope.
const maxEnvelope = 2 << 10

// match returns the text of a piece as it is written, if the rest of the piece is
// the envelope. The caller checks that it is a JSON string.
func (e *envelope) match(data []byte) (raw []byte, ok bool) {
	if !e.known || len(data) < len(e.head)+len(e.tail) ||
		!bytes.HasPrefix(data, e.head) || !bytes.HasSuffix(data, e.tail) {
		return nil, false
	}
	return data[len(e.head) : len(data)-len(e.tail)], true
}

// learn remembers the envelope of a piece that adds only the string raw, a
// sub-slice of data. With nil, it forgets the envelope: the piece adds something
// else.
func (e *envelope) learn(data, raw []byte) {
	e.known = raw != nil && len(data)-len(raw) <= maxEnvelope
	if !e.known {
		return
	}
	at := cap(data) - cap(raw) // raw's offset: both slices end at the same memory
	e.head = append(e.head[:0], data[:at]...)
	e.tail = append(e.tail[:0], data[at+len(raw):]...)
}

// emptied returns an envelope that knows nothing, with the memory of this one.
func (e *envelope) emptied() envelope {
	return envelope{head: e.head[:0], tail: e.tail[:0]}
}
