package mock

import (
	"fmt"
	"strconv"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/internal/rawjson"
)

// question holds the members of a request's body that the mock uses, as they are
// written there.
type question struct {
	prompt      []byte // JSON; nil without one
	seed        []byte // JSON; nil without one
	temperature float64
}

// sampled reports whether a real model would sample with the seed.
func (q question) sampled() bool { return q.seed != nil && q.temperature > 0 }

// read reads the prompt, seed and temperature in one pass and skips all other
// members.
func read(r engine.Request) (question, error) {
	var q question
	err := rawjson.Members(r.Body, func(name, v []byte) (err error) {
		switch string(name) {
		case "prompt":
			if r.Endpoint == engine.Completion {
				q.prompt = v
			}
		case "messages":
			if r.Endpoint == engine.Chat {
				q.prompt, err = lastUser(v)
			}
		case "seed":
			if !rawjson.IsNull(v) {
				q.seed = v
			}
		case "temperature":
			if !rawjson.IsNull(v) {
				q.temperature, err = strconv.ParseFloat(string(v), 64)
			}
		}
		return err
	})
	if err != nil {
		return q, fmt.Errorf("the request's body can't be read: %w", err)
	}
	if q.prompt == nil {
		return q, fmt.Errorf("a %s request needs a prompt, or messages with one of role user", r.Endpoint)
	}
	return q, nil
}

// lastUser returns the content of the last message whose role is user.
func lastUser(messages []byte) ([]byte, error) {
	var last []byte
	err := rawjson.Elements(messages, func(message []byte) error {
		var role, content []byte
		err := rawjson.Members(message, func(name, v []byte) error {
			switch string(name) {
			case "role":
				role = v
			case "content":
				content = v
			}
			return nil
		})
		if string(role) == `"user"` {
			last = content
		}
		return err
	})
	return last, err
}

// appendText appends a value as text: the text of a string, the joined texts of an
// array of strings or content parts, or the JSON of anything else.
func appendText(dst, value []byte) ([]byte, error) {
	if rawjson.IsString(value) {
		return rawjson.AppendText(dst, value)
	}
	if !rawjson.IsArray(value) {
		return append(dst, value...), nil
	}
	texts := 0
	add := func(v []byte) (err error) {
		texts++
		dst, err = rawjson.AppendText(dst, v)
		return err
	}
	err := rawjson.Elements(value, func(v []byte) error {
		if rawjson.IsString(v) {
			return add(v)
		}
		if !rawjson.IsObject(v) {
			return nil
		}
		return rawjson.Members(v, func(name, v []byte) error {
			if string(name) == "text" && rawjson.IsString(v) {
				return add(v)
			}
			return nil
		})
	})
	if texts == 0 {
		dst = append(dst, value...)
	}
	return dst, err
}
