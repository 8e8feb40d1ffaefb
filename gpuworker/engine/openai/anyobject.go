package openai

import (
	"bytes"
	"strings"

	"rollout/gpuworker/engine/internal/rawjson"
)

// addAny adds the answer of an endpoint that has no choices: embeddings, scores,
// rankings, OpenAI's responses, or whatever a path answers. Its members are kept as
// they are. Of a stream of OpenAI's responses, only the last event has the answer.
func (p *parts) addAny(data []byte) error {
	if rawjson.IsArray(data) { // of scores or vectors, from some servers
		p.chosen = p.chosen || string(data) != "[]"
		if err := p.takeBytes(len(data)); err != nil {
			return err
		}
		return p.inBody.set([]byte("data"), data)
	}
	var kind string
	var response []byte
	choices, failed := false, false
	err := rawjson.Members(data, func(name, v []byte) error {
		switch string(name) {
		case "type":
			kind = stringOr(v)
		case "response":
			response = v
		case "choices":
			choices = rawjson.IsArray(v)
		case "object":
			failed = failed || string(v) == `"error"`
		case "error":
			failed = failed || !rawjson.IsNull(v) && string(v) != `""` && string(v) != "false"
		}
		return nil
	})
	switch {
	case err != nil:
		return asMalformed(err, data)
	case choices:
		p.any = false
		return p.addObject(data)
	case failed || kind == "error":
		return &sentError{bytes.Clone(data)}
	case strings.HasPrefix(kind, "response.") && rawjson.IsObject(response):
		p.delta = true
		switch kind {
		case "response.completed", "response.incomplete", "response.failed":
			return asMalformed(p.addResponse(response), data)
		}
		return nil
	case strings.HasPrefix(kind, "response."):
		p.delta = true
		if strings.HasSuffix(kind, ".delta") {
			p.pieces++
		}
		return nil
	}
	return asMalformed(p.addResponse(data), data)
}

// addResponse adds a whole answer.
func (p *parts) addResponse(object []byte) error {
	var status, reason string
	err := rawjson.Members(object, func(name, v []byte) error {
		switch string(name) {
		case "id", "created", "created_at", "completed_at", "request_id": // differ in every answer
			return nil
		case "usage":
			p.addUsage(v)
		case "model":
			p.model = stringOr(v)
		case "object":
		case "status":
			status = stringOr(v)
		case "incomplete_details":
			reason = p.reasonOf(v)
		case "error":
			if !rawjson.IsNull(v) {
				return &sentError{bytes.Clone(object)}
			}
		case "output":
			if err := p.addOutput(v); err != nil {
				return err
			}
			fallthrough
		default:
			empty := rawjson.IsNull(v) || string(v) == "[]" || string(v) == "{}" || string(v) == `""`
			p.chosen = p.chosen || !empty
		}
		if rawjson.IsNull(v) {
			return nil
		}
		if err := p.takeBytes(len(v)); err != nil {
			return err
		}
		return p.inBody.set(name, v)
	})
	switch status {
	case "completed":
		p.finish = "stop"
	case "incomplete":
		p.finish = "incomplete"
		if reason != "" {
			p.finish = reason
		}
	case "failed", "cancelled":
		p.finish = "error"
	}
	return err
}

// reasonOf returns why a response is incomplete, by the name that chats have for it.
func (p *parts) reasonOf(details []byte) (reason string) {
	if !rawjson.IsObject(details) {
		return ""
	}
	// The details are a member of an object that has been walked.
	_ = rawjson.Members(details, func(name, v []byte) error {
		if string(name) == "reason" {
			reason = stringOr(v)
		}
		return nil
	})
	if reason == "max_output_tokens" {
		return "length"
	}
	return reason
}

// addOutput adds the texts of a response's output to the answer's text and reasoning.
func (p *parts) addOutput(output []byte) error {
	if !rawjson.IsArray(output) {
		return nil
	}
	return rawjson.Elements(output, func(item []byte) error {
		kind, lists := "", [][]byte(nil)
		err := rawjson.Members(item, func(name, v []byte) error {
			switch string(name) {
			case "type":
				kind = stringOr(v)
			case "content", "summary":
				if rawjson.IsArray(v) {
					lists = append(lists, v)
				}
			}
			return nil
		})
		if err != nil || kind != "message" && kind != "reasoning" {
			return err
		}
		to := &p.text
		if kind == "reasoning" {
			to = &p.reasoning
		}
		for _, list := range lists {
			if err := p.addTexts(to, list); err != nil {
				return err
			}
		}
		return nil
	})
}

// addTexts adds the member text of all elements of a list.
func (p *parts) addTexts(to *[]byte, list []byte) error {
	return rawjson.Elements(list, func(part []byte) error {
		return rawjson.Members(part, func(name, v []byte) error {
			if string(name) == "text" && rawjson.IsString(v) {
				return p.addText(to, v)
			}
			return nil
		})
	})
}
