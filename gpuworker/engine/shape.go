package engine

import "rollout/gpuworker/engine/internal/rawjson"

// SetsShape reports whether a request sets the shape of its answer. A model that has
// lost the shape may send white space until its tokens are used up; a stream of it can
// be cancelled.
func SetsShape(body []byte) bool {
	found := false
	err := rawjson.Members(body, func(name, v []byte) error {
		switch string(name) {
		case "response_format": // {"type":"json_object"} and others
			free := !rawjson.IsObject(v)
			if !free {
				err := rawjson.Members(v, func(name, v []byte) error {
					free = free || string(name) == "type" && string(v) == `"text"`
					return nil
				})
				free = free || err != nil
			}
			found = found || !free
		case "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", // vLLM
			"json_schema", "regex", "ebnf", "grammar": // SGLang, llama.cpp
			found = found || !rawjson.IsNull(v)
		}
		return nil
	})
	return err == nil && found
}
