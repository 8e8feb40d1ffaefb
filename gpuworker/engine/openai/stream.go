package openai

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/internal/rawjson"
)

// wirePerAnswer bounds the bytes of stream per byte of the largest answer. Servers
// send about 60 around a token; a longer stream would never end.
const wirePerAnswer = 64

var (
	errOversized = errors.New("the answer is larger than the client takes")
	errBroken    = errors.New("the connection ended before the answer did")
	errUnended   = errors.New("the answer ended without a finish reason: it may be cut")
)

// sentError is an error object that the server sent instead of an answer.
type sentError struct{ body []byte }

func (e *sentError) Error() string { return "the server sent an error" }

// call is the memory of one answer; it is reused.
type call struct {
	in       *bufio.Reader
	long     []byte // a line that is not whole in in's buffer
	afterCR  bool   // the last line ended in CR: an LF that follows belongs to it
	wire     int64  // bytes read
	max      int64
	framed   bool // the response says where it ends, so that a clean end is its end
	event    event
	parts    parts
	body     []byte // of the request, until it is answered
	atEnd    bool   // the response is read to its end
	progress func()
	cancel   context.CancelFunc
	conceal  func(string) string // see Client
}

// event is the part of a response that is being read.
type event struct {
	name   []byte  // the field event
	data   []byte  // the fields data so far, or the lines of a bare value
	has    bool    // there is data
	bare   bool    // data is a JSON value outside of any field
	nest   nesting // of the bare value
	events int     // events and bare values that have been added
	whole  bool    // the last of them was a bare value
	done   bool    // [DONE] came
	odd    []byte  // the beginning of a line that is neither a field nor JSON
}

func newCall(max int64, conceal func(string) string) *call {
	k := &call{in: bufio.NewReaderSize(nil, 8<<10), max: max, conceal: conceal}
	k.reset()
	return k
}

// reset removes the previous answer and keeps small buffers.
func (k *call) reset() {
	k.in.Reset(nil)
	k.wire, k.atEnd, k.afterCR, k.framed = 0, false, false, false
	if cap(k.long) > 1<<20 {
		k.long = nil
	}
	k.event = event{name: k.event.name[:0], data: kept(k.event.data)}
	k.parts.reset(k.max)
}

func (c *Client) release(k *call) {
	k.reset()
	k.progress, k.cancel, k.body = nil, nil, nil
	c.memory.Put(k)
}

// readBody reads a response: server-sent events up to [DONE], one JSON value, or
// one value per line. The first bytes tell them apart and not the content type,
// which servers and proxies often get wrong.
//
// Events follow the WHATWG's rules: a byte order mark is dropped; LF, CRLF and CR
// end a line; the data fields of an event are joined by LF; comments and unknown
// fields are ignored. More is accepted: an event without the blank line at its end,
// several values in one event, a bare value in place of an event, and a field error
// (older llama.cpp). Comments are not progress.
func (k *call) readBody() error {
	if bom, _ := k.in.Peek(3); string(bom) == "\xEF\xBB\xBF" {
		_, _ = k.in.Discard(3) // buffered
	}
	for {
		line, err := k.line()
		switch {
		case errors.Is(err, errOversized):
			return err
		case err != nil:
			k.atEnd = true
			return k.endOfBody(err)
		}
		if err := k.takeLine(line); err != nil || k.event.done {
			return err
		}
	}
}

// endOfBody takes what is left when reading the response ended with an error, which
// is io.EOF at a clean end. It decides whether the answer is complete: by its finish
// reason, or because it is one JSON value, whose end is its last brace.
func (k *call) endOfBody(end error) error {
	e := &k.event
	clean := errors.Is(end, io.EOF)
	if e.has {
		err := k.dispatch()
		if errors.Is(err, rawjson.ErrTruncated) && !(clean && k.framed) {
			return broken(end)
		}
		if err != nil || e.done {
			return err
		}
	}
	switch {
	case errors.Is(end, errMalformed): // damaged compression
		return end
	case k.parts.finished(), e.events == 1 && e.whole && !k.parts.delta:
		return nil
	case !clean:
		return broken(end)
	case e.events == 0 && len(e.odd) > 0:
		return fmt.Errorf("%w: it is not JSON and begins with %q", errMalformed, e.odd)
	case e.events == 0:
		return fmt.Errorf("%w: it is empty", errMalformed)
	}
	return errUnended
}

// broken returns the error of an answer whose reading ended too early.
func broken(end error) error {
	if errors.Is(end, io.EOF) || errors.Is(end, io.ErrUnexpectedEOF) {
		return errBroken
	}
	return fmt.Errorf("%w: %w", errBroken, end)
}

// takeLine takes one line of the response.
func (k *call) takeLine(line []byte) error {
	e := &k.event
	switch {
	case e.bare:
		return k.takeBare(line)
	case len(line) == 0:
		return k.endEvent()
	case line[0] == ':':
		return nil
	}
	if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
		return k.takeData(data)
	}
	if name, ok := bytes.CutPrefix(line, []byte("event:")); ok {
		e.name = append(e.name[:0], bytes.TrimSpace(name)...)
		return nil
	}
	if sent, ok := bytes.CutPrefix(line, []byte("error:")); ok {
		return &sentError{fmt.Appendf(nil, `{"error":%s}`, bytes.TrimSpace(sent))}
	}
	switch first := bytes.TrimLeft(line, " \t"); {
	case len(first) == 0:
		return nil
	case (first[0] == '{' || first[0] == '[') && !e.has:
		e.bare, e.has = true, true
		return k.takeBare(line)
	case len(e.odd) == 0:
		shown := k.conceal(string(first[:min(len(first), maxErrorBody)])) // before it is cut
		e.odd = append(e.odd, shown[:min(len(shown), 80)]...)
	}
	return nil
}

// takeData takes the value of a data field. An event of one field that is followed
// by a blank line in the buffer is added without a copy.
func (k *call) takeData(data []byte) error {
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return nil
	}
	if string(data) != "[DONE]" {
		k.progress()
	}
	e := &k.event
	if !e.has && len(e.name) == 0 && k.blankLineNext() {
		return k.add(data)
	}
	if e.has {
		e.data = append(e.data, '\n')
	}
	e.data, e.has = append(e.data, data...), true
	if int64(len(e.data)) > k.max {
		return errOversized
	}
	if string(data) == "[DONE]" { // not every server ends it
		return k.endEvent()
	}
	return nil
}

// blankLineNext reports whether the next line is in the buffer and blank.
func (k *call) blankLineNext() bool {
	next, _ := k.in.Peek(min(2, k.in.Buffered()))
	if k.afterCR {
		next = bytes.TrimPrefix(next, []byte{'\n'})
	}
	return len(next) > 0 && (next[0] == '\n' || next[0] == '\r')
}

// takeBare takes a line of a bare JSON value, and adds the value when it is whole.
func (k *call) takeBare(line []byte) error {
	e := &k.event
	if e.nest.feed(line); e.nest.depth == 0 && len(e.data) == 0 {
		k.progress()
		e.bare, e.has, e.nest, e.whole = false, false, nesting{}, true
		return k.add(line)
	}
	e.data = append(append(e.data, line...), '\n')
	if int64(len(e.data)) > k.max {
		return errOversized
	}
	if e.nest.depth > 0 {
		return nil
	}
	k.progress()
	return k.endEvent()
}

// endEvent adds the event at its blank line.
func (k *call) endEvent() error {
	if !k.event.has {
		k.event.name = k.event.name[:0]
		return nil
	}
	return k.dispatch()
}

// dispatch adds the event and empties it.
func (k *call) dispatch() error {
	e := &k.event
	failed := string(e.name) == "error"
	data := e.data
	e.whole, e.bare, e.has, e.nest = e.bare, false, false, nesting{}
	e.name, e.data = e.name[:0], e.data[:0]
	if failed {
		return &sentError{bytes.Clone(data)}
	}
	return k.add(data)
}

// add adds the values of one event: usually one, several if a server does not end
// its events. ErrTruncated of rawjson is in the chain of the error of a value without
// its end.
func (k *call) add(data []byte) error {
	if bytes.IndexByte(data, '\n') < 0 {
		return k.addValue(data)
	}
	for !k.event.done {
		value, rest, err := rawjson.Next(data)
		if err != nil {
			return asMalformed(err, data)
		}
		if len(value) == 0 {
			return nil
		}
		if err := k.addValue(value); err != nil {
			return err
		}
		data = rest
	}
	return nil
}

func (k *call) addValue(data []byte) error {
	if string(data) == "[DONE]" {
		k.event.done = true
		return nil
	}
	k.event.events++
	if err := k.parts.add(data); err != nil {
		return err
	}
	if k.whitespaceOnly() {
		return engine.ErrWhitespace
	}
	return nil
}

// line returns the next line without its end, or errOversized, or the error of the
// connection. The bytes are valid until the next read. The last line may lack an
// end. LF, CRLF and CR end a line: U+2028, U+2029 and U+0085 occur within data.
func (k *call) line() ([]byte, error) {
	k.long = k.long[:0]
	for {
		buffered, _ := k.in.Peek(k.in.Buffered())
		if k.afterCR && len(buffered) > 0 {
			k.afterCR = false
			if buffered[0] == '\n' {
				_, _ = k.in.Discard(1) // buffered
				continue
			}
		}
		n := bytes.IndexByte(buffered, '\n')
		end := n + 1
		if n < 0 {
			n = len(buffered)
			end = n
		}
		if cr := bytes.IndexByte(buffered[:n], '\r'); cr >= 0 {
			n, end = cr, cr+1
			k.afterCR = true
		}
		k.wire += int64(end)
		if int64(len(k.long)+n) > k.max || k.wire/wirePerAnswer > k.max {
			return nil, errOversized
		}
		part := buffered[:n]
		_, _ = k.in.Discard(end) // buffered: part stays valid until the next read
		if end > n {
			if len(k.long) == 0 {
				return part, nil
			}
			k.long = append(k.long, part...)
			return k.long, nil
		}
		k.long = append(k.long, part...)
		if _, err := k.in.Peek(1); err != nil {
			if len(k.long) > 0 { // the next call meets the error again
				return k.long, nil
			}
			return nil, err
		}
	}
}

// nesting follows the brackets of a JSON value that comes line by line.
type nesting struct {
	depth             int
	inString, escaped bool
}

func (n *nesting) feed(line []byte) {
	for i := 0; i < len(line); i++ {
		if n.inString && !n.escaped {
			next := bytes.IndexAny(line[i:], `"\\`)
			if next < 0 {
				return
			}
			i += next
		}
		switch c := line[i]; {
		case n.escaped:
			n.escaped = false
		case n.inString:
			n.escaped = c == '\\'
			n.inString = c != '"'
		case c == '"':
			n.inString = true
		case c == '{' || c == '[':
			n.depth++
		case c == '}' || c == ']':
			n.depth--
		}
	}
}
