package dialect

import "rollout/shared/jsonl"

// parsePlain reads {"prompt": …} or {"messages": […]}, with an optional id. The output
// row repeats all other members.
func (it *Item) parsePlain(ms []jsonl.Member) error {
	for _, m := range ms {
		switch string(m.Name) {
		case "id":
		case "prompt", "messages":
			if it.key != "" {
				return lineError("keep one of them", "the line has both prompt and messages")
			}
			it.key = string(m.Name)
			it.Request = compact(m)
			it.one[0] = jsonl.Member{Name: m.Name, RawName: m.RawName, Value: it.Request}
			it.body = it.one[:]
		default:
			it.extra = append(it.extra, m)
		}
	}
	switch it.key {
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
