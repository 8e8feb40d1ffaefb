package mock

import (
	"fmt"
	"strconv"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/internal/rawjson"
)

// question is what the mock needs of a request's body, as it is written there.
type question struct {
	prompt      []byte // JSON; nil if there is none
	seed        []byte // JSON; nil if there is none
	temperature float64
}

// sampled reports whether a real model would draw from the seed.
func (q question) sampled() bool { return q.seed != nil && q.temperature > 0 }

// read picks the prompt, seed and temperature out of the body in one pass; all
// other members are skipped.
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
		return q, fmt.Errorf("the request's body is not readable: %w", err)
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

// appendText appends a value as text: a string is itself, an array of strings
// or content parts is its texts joined, anything else is its JSON.
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
