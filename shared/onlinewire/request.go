package onlinewire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"rollout/shared/fault"
)

// Request is what is read of a request's body. All else is passed on as it is.
type Request struct {
	Body      []byte
	Model     string
	Stream    bool
	MaxTokens int64 // the most tokens of the answer; 0 if it does not say

	modelAt, modelEnd int // of the value in Body
}

// Parse reads a body: one JSON object that names a model. Any other is Invalid.
func Parse(body []byte) (Request, error) {
	q := Request{Body: body}
	d := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	if d.PeekKind() != jsontext.KindBeginObject {
		return q, fault.New(fault.Invalid, "the body is not a JSON object")
	}
	_, err := d.ReadToken()
	for err == nil && d.PeekKind() != jsontext.KindEndObject {
		err = q.member(d)
	}
	if err == nil {
		_, err = d.ReadToken()
	}
	if err == nil {
		if _, rest := d.ReadToken(); rest != io.EOF {
			err = fmt.Errorf("it goes on after the object")
		}
	}
	if err != nil {
		return q, fault.WithKind(fault.Invalid, err, "read the body as JSON")
	}
	return q, nil
}

// member reads a member of the object.
func (q *Request) member(d *jsontext.Decoder) error {
	name, err := d.ReadToken()
	if err != nil {
		return err
	}
	var into any
	switch key := name.String(); key {
	case "model":
		v, err := d.ReadValue()
		if err != nil {
			return err
		}
		q.modelEnd = int(d.InputOffset())
		q.modelAt = q.modelEnd - len(v)
		if v.Kind() != '"' {
			return fmt.Errorf("model is not a text")
		}
		return json.Unmarshal(v, &q.Model)
	case "stream":
		into = &q.Stream
	case "max_tokens", "max_completion_tokens", "max_output_tokens":
		into = &q.MaxTokens
	default:
		return d.SkipValue()
	}
	v, err := d.ReadValue()
	if err != nil {
		return err
	}
	_ = json.Unmarshal(v, into) // the server refuses what is wrong
	return nil
}

// WithModel returns the body with another name of the model. The other bytes are the same.
func (q Request) WithModel(name string) []byte {
	if name == q.Model || q.modelEnd == 0 {
		return q.Body
	}
	quoted, err := json.Marshal(name)
	if err != nil { // a text always has a JSON form
		return q.Body
	}
	return bytes.Join([][]byte{q.Body[:q.modelAt], quoted, q.Body[q.modelEnd:]}, nil)
}
