package openai

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"rollout/gpuworker/engine"
)

// wirePerAnswer bounds the bytes of stream per byte of the largest answer. Servers
// send about 60 around a token; a longer stream would never end.
const wirePerAnswer = 64

var (
	errOversized = errors.New("the answer is larger than the client takes")
	errBroken    = errors.New("the connection ended before the answer did")
)

// sentError is an error object that the server sent instead of an answer.
type sentError struct{ body []byte }

func (e *sentError) Error() string { return "the server sent an error" }

// call is the memory of one answer; it is reused.
type call struct {
	in       *bufio.Reader
	long     []byte // a line that exceeds in's buffer
	wire     int64  // bytes of stream read
	max      int64
	parts    parts
	body     []byte // of the request, until it is answered
	atEnd    bool   // the response is read to its end
	progress func()
	cancel   context.CancelFunc
}

func newCall(max int64) *call {
	k := &call{in: bufio.NewReaderSize(nil, 8<<10), max: max}
	k.reset()
	return k
}

// reset removes the previous answer and keeps small buffers.
func (k *call) reset() {
	k.in.Reset(nil)
	k.wire, k.atEnd = 0, false
	if cap(k.long) > 1<<20 {
		k.long = nil
	}
	k.parts.reset(k.max)
}

func (c *Client) release(k *call) {
	k.reset()
	k.progress, k.cancel, k.body = nil, nil, nil
	c.memory.Put(k)
}

// readStream reads server-sent events up to [DONE]. Each event of these servers is
// one data line. Only LF and CRLF end a line: U+2028, U+2029 and U+0085 occur within
// data. Comments do not count as progress.
func (k *call) readStream() error {
	for {
		line, err := k.line()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			k.atEnd = true
			if k.parts.finished {
				return nil
			}
			return errBroken
		}
		if err != nil {
			return err
		}
		data, ok := eventData(line)
		if !ok {
			continue
		}
		if string(data) == "[DONE]" {
			return nil
		}
		k.progress()
		if err := k.parts.add(data); err != nil {
			return err
		}
		if k.whitespaceOnly() {
			return engine.ErrWhitespace
		}
	}
}

// eventData returns the data of a line that has some: a data field, an error field
// (older llama.cpp), or a bare object in place of an event.
func eventData(line []byte) ([]byte, bool) {
	if len(line) > 0 && line[0] == '{' {
		return line, true
	}
	if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
		rest = bytes.TrimSpace(rest)
		return rest, len(rest) > 0
	}
	if rest, ok := bytes.CutPrefix(line, []byte("error:")); ok {
		return fmt.Appendf(nil, `{"error":%s}`, bytes.TrimSpace(rest)), true
	}
	return nil, false
}

// line returns the next line without its end. The bytes are valid until the next
// call. The last line may lack an end.
func (k *call) line() ([]byte, error) {
	k.long = k.long[:0]
	for {
		part, err := k.in.ReadSlice('\n')
		k.wire += int64(len(part))
		if int64(len(k.long)+len(part)) > k.max || k.wire/wirePerAnswer > k.max {
			return nil, errOversized
		}
		switch {
		case err == nil && len(k.long) == 0:
			return withoutEnd(part), nil
		case err == nil:
			k.long = append(k.long, part...)
			return withoutEnd(k.long), nil
		case errors.Is(err, bufio.ErrBufferFull):
			k.long = append(k.long, part...)
		case errors.Is(err, io.EOF) && len(k.long)+len(part) > 0:
			k.long = append(k.long, part...)
			return k.long, nil
		default:
			return nil, err
		}
	}
}

// withoutEnd drops a line's LF or CRLF.
func withoutEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'})
}

// readWhole reads an answer that is one JSON object.
func (k *call) readWhole() error {
	body := bytes.NewBuffer(k.long[:0])
	n, err := body.ReadFrom(io.LimitReader(k.in, k.max+1))
	k.long = body.Bytes()
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errBroken
	}
	if err != nil {
		return err
	}
	if n > k.max {
		return errOversized
	}
	k.atEnd = true
	return k.parts.add(k.long)
}
