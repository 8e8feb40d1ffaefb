package openai

import "bytes"

// envelope is how a stream's pieces look but for the text that each adds:
// servers repeat an envelope of a few hundred bytes around every token. A piece
// of the same envelope needs no walk over it, which is most of what an answer
// costs its client.
type envelope struct {
	head, tail []byte // what stands before and after the text's string
	known      bool
}

// maxEnvelope bounds what is remembered.
const maxEnvelope = 2 << 10

// match returns the string that the piece adds, as written, if the rest of it
// is the envelope. The caller checks that it is a string.
func (t *envelope) match(data []byte) (raw []byte, ok bool) {
	if !t.known || len(data) < len(t.head)+len(t.tail) || !bytes.HasPrefix(data, t.head) || !bytes.HasSuffix(data, t.tail) {
		return nil, false
	}
	return data[len(t.head) : len(data)-len(t.tail)], true
}

// learn remembers the envelope of a piece that does nothing, done once more,
// but to add the string raw, a part of data; nil if there is no such string.
func (t *envelope) learn(data, raw []byte) {
	t.known = raw != nil && len(data)-len(raw) <= maxEnvelope
	if !t.known {
		return
	}
	at := cap(data) - cap(raw) // where raw begins: both reach to the same end of memory
	t.head = append(t.head[:0], data[:at]...)
	t.tail = append(t.tail[:0], data[at+len(raw):]...)
}

// emptied is the template without what it knows, with its memory.
func (t *envelope) emptied() envelope {
	return envelope{head: t.head[:0], tail: t.tail[:0]}
}
