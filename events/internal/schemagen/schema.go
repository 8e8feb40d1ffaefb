package main

import (
	"encoding/json"
	"strings"

	"github.com/invopop/jsonschema"

	"rollout/events"
)

// home is the base of the schemas' ids; it serves nothing.
const home = "https://rollout.invalid/events/"

// schemas returns the schema files of the envelope and of every payload, by
// file name. See reflector for base and source.
func schemas(base, source string) (map[string][]byte, error) {
	r, err := reflector(base, source)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	add := func(name string, v any) error {
		s := r.Reflect(v)
		s.ID = jsonschema.ID(home + name)
		b, err := json.MarshalIndent(s, "", "  ")
		files[name] = append(b, '\n')
		return err
	}
	if err := add("envelope.json", events.Envelope{}); err != nil {
		return nil, err
	}
	for _, p := range events.Payloads() {
		if err := add(string(p.EventType())+".json", p); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// reflector returns a reflector whose schemas allow further fields, as readers do.
// The library looks up comments by import path. It forms that path from base and
// the folder source, relative to the working folder: path.Join(base, source) must
// be package events.
func reflector(base, source string) (*jsonschema.Reflector, error) {
	r := &jsonschema.Reflector{AllowAdditionalProperties: true, ExpandedStruct: true, DoNotReference: true}
	err := r.AddGoComments(base, source, jsonschema.WithFullComment())
	for name, comment := range r.CommentMap {
		r.CommentMap[name] = strings.ReplaceAll(comment, "\n", " ")
	}
	return r, err
}
