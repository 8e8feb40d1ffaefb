package dialect

import (
	"slices"

	"rollout/shared/jsonl"
)

// parsePlain reads {"prompt": …} or {"messages": […]}, with an optional id. The output
// row repeats all other members, and the request has those that are parameters. A null
// is a missing member, as in files of rows of several kinds.
func (it *Item) parsePlain(ms []jsonl.Member) error {
	var params []jsonl.Member
	for _, m := range ms {
		switch string(m.Name) {
		case "id":
		case "prompt", "messages":
			if string(m.Value) == "null" {
				continue
			}
			if it.key != "" {
				return lineError("keep one of them", "the line has both prompt and messages")
			}
			it.key = string(m.Name)
			it.Request = compact(m)
			it.one[0] = jsonl.Member{Name: m.Name, RawName: m.RawName, Value: it.Request}
			it.body = it.one[:]
		default:
			it.extra = append(it.extra, m)
			if string(m.Value) != "null" && isParameter(string(m.Name)) {
				params = append(params, jsonl.Member{Name: m.Name, RawName: m.RawName, Value: compact(m)})
			}
		}
	}
	if it.key == "" {
		params = append(params, it.takePair("query", "documents")...)
		params = append(params, it.takePair("text_1", "text_2")...)
	}
	if err := it.setParameters(params); err != nil {
		return err
	}
	switch it.key {
	case "query":
		it.Endpoint = Rerank
		return nil
	case "text_1":
		it.Endpoint = Score
		return nil
	case "prompt":
		it.Endpoint = Completion
		if it.Request[0] != '"' {
			return wrongType("prompt", "a string", it.Request)
		}
		return nil
	case "messages":
		it.Endpoint = Chat
		return checkMessages("messages", it.Request)
	}
	return lineError(`write {"prompt": "…"} or {"messages": […]}`, "the line has neither prompt nor messages")
}

// takePair makes a request to rank or to score of a line without a prompt that has both
// members. The first is the line's Request, and the second is returned as a parameter.
func (it *Item) takePair(first, second string) []jsonl.Member {
	at := func(name string) int {
		return slices.IndexFunc(it.extra,
			func(m jsonl.Member) bool { return string(m.Name) == name && string(m.Value) != "null" })
	}
	i, k := at(first), at(second)
	if it.key != "" || i < 0 || k < 0 {
		return nil
	}
	m, with := it.extra[i], it.extra[k]
	with.Value = compact(with)
	it.key, it.Request = first, compact(m)
	it.one[0] = jsonl.Member{Name: m.Name, RawName: m.RawName, Value: it.Request}
	it.body = it.one[:]
	it.extra = slices.Delete(it.extra, i, i+1)
	return []jsonl.Member{with}
}

// checkMessages requires an array of at least one object. The server checks the rest.
func checkMessages(what string, raw []byte) error {
	if raw[0] != '[' {
		return wrongType(what, "an array of messages", raw)
	}
	empty := true
	a := jsonl.ReadKnownArray(raw)
	for e, ok := a.Next(); ok; e, ok = a.Next() {
		empty = false
		if e[0] != '{' {
			return wrongType("an element of "+what, "an object", e)
		}
	}
	if empty {
		return lineError("give at least one message", "%s is empty", what)
	}
	return nil
}
