// Package wire has the messages between a worker and its plugins.
//
// A request is the JSON object {"method": …, "payload": …}, and its reply {"payload": …} or
// {"error": "why"}. A WebAssembly module gets and returns them in its memory, and a sidecar as
// frames on its socket: a length of 4 bytes, big-endian, and the JSON text.
//
// What a plugin sends is hostile: nothing is read beyond MaxBytes, and what is no reply is an
// error. The package starts nothing and waits for nothing but its stream.
package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"rollout/shared/config"
	"rollout/shared/fault"
)

// MaxBytes bounds a request and a reply.
const MaxBytes = 16 << 20

// maxReason bounds what is repeated of a plugin's error.
const maxReason = 500

// ErrMalformed is in the errors of replies that are not of the protocol.
var ErrMalformed = errors.New("the plugin's reply is malformed")

// RefusedError is what a plugin replied in place of a payload: its own verdict on the request.
type RefusedError struct{ Reason string }

// Error returns the plugin's words, quoted and bounded.
func (e *RefusedError) Error() string { return fmt.Sprintf("the plugin says %q", e.Reason) }

// request and reply are the messages.
type (
	request struct {
		Method  string          `json:"method"`
		Payload json.RawMessage `json:"payload,omitempty"`
	}
	reply struct {
		Payload json.RawMessage `json:"payload"`
		Error   *string         `json:"error"`
	}
)

// AppendRequest appends a request. Payload is JSON text, or empty. One that is not JSON, or too
// large, is Invalid.
func AppendRequest(dst []byte, method string, payload []byte) ([]byte, error) {
	text, err := json.Marshal(request{method, payload})
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "encode the request %s", method)
	}
	if len(text) > MaxBytes {
		return nil, fault.New(fault.Invalid, "the request %s has %d bytes, and at most %d are allowed", method, len(text),
			MaxBytes)
	}
	return append(dst, text...), nil
}

// DecodeReply returns the payload of a reply. The plugin's own error is Invalid and a
// RefusedError. Anything but a reply is Unavailable and ErrMalformed: a plugin that is mended or
// started again may do better.
func DecodeReply(text []byte) (payload []byte, err error) {
	var r reply
	d := json.NewDecoder(bytes.NewReader(text))
	switch err := d.Decode(&r); {
	case err != nil:
		return nil, malformed("it is not a JSON object with a payload or an error: %v", err)
	case d.More() || !utf8.Valid(text):
		return nil, malformed("it is not one JSON object in UTF-8")
	case r.Error != nil && r.Payload != nil:
		return nil, malformed("it has a payload and an error")
	case r.Error != nil:
		return nil, &fault.Error{Kind: fault.Invalid, Err: &RefusedError{(*r.Error)[:min(len(*r.Error), maxReason)]}}
	case r.Payload == nil:
		return nil, malformed("it has neither a payload nor an error")
	}
	return r.Payload, nil
}

func malformed(format string, args ...any) error {
	return &fault.Error{Kind: fault.Unavailable, Err: fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))}
}

// WriteFrame writes a message and its length.
func WriteFrame(w io.Writer, text []byte) error {
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(text)), uint32(len(text)))
	_, err := w.Write(append(frame, text...))
	return err
}

// ReadFrame reads a message. It takes memory as the bytes come. A frame that says it is longer
// than MaxBytes is Unavailable and ErrMalformed; an end before the first byte is io.EOF.
func ReadFrame(r io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > MaxBytes {
		return nil, malformed("its frame says that it has %d bytes, and at most %d are allowed", n, MaxBytes)
	}
	var text bytes.Buffer
	if _, err := io.CopyN(&text, r, int64(n)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return text.Bytes(), nil
}

// The messages with which a sidecar begins.
type (
	// Hello is the payload of the request "init".
	Hello struct {
		ABI     int    `json:"abi"`
		Name    string `json:"name"`
		Version string `json:"version"`
		Kind    string `json:"kind"`
	}
	// Ready is the payload of its reply.
	Ready struct {
		ABI       int  `json:"abi"`
		Preflight bool `json:"preflight"` // the plugin wants the request "preflight" before the first call
	}
)

// CheckABI returns Invalid if a plugin has another version of the protocol.
func CheckABI(got int64) error {
	if got == config.PluginABI {
		return nil
	}
	return &fault.Error{Kind: fault.Invalid,
		Err:    fmt.Errorf("plugin ABI mismatch: got %d, expected %d", got, config.PluginABI),
		Remedy: "build the plugin for this version of rollout"}
}
