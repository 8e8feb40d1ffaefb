package dialect

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

// Settings are the [request] of a run over that of its engine, prepared for many
// requests. Nil has no settings. It is safe for concurrent use.
type Settings struct {
	endpoint  string
	maxTokens string
	system    []byte // a JSON string; nil without one
	omit      map[string]bool
	extra     []member
	run       *config.Request
	models    map[string]string // the engine's names of runs' models
}

// member is a member of an object: its name, and its value as JSON.
type member struct {
	name  string
	value []byte
}

// NewSettings returns the settings, or nil without settings.
func NewSettings(run *config.Request, engine config.Request) *Settings {
	if run.IsZero() && engine.IsZero() {
		return nil
	}
	r := run.Over(engine)
	s := &Settings{endpoint: r.Endpoint, maxTokens: r.MaxTokensField, omit: map[string]bool{},
		run: run, models: engine.BodyModel}
	if r.System != "" {
		s.system = jsonl.AppendString(nil, r.System)
	}
	for _, name := range r.Omit {
		s.omit[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(r.Extra)) {
		if v, err := json.Marshal(r.Extra[name]); err == nil { // checked by the config
			s.extra = append(s.extra, member{name, v})
		}
	}
	return s
}

// Path returns the path that replaces that of the item's endpoint, or "".
func (s *Settings) Path(it *Item) string {
	if s != nil && it.dialect != OpenAI && strings.HasPrefix(s.endpoint, "/") {
		return s.endpoint
	}
	return ""
}

// Omits reports whether a member is never sent.
func (s *Settings) Omits(name string) bool { return s != nil && s.omit[name] }

// Sets reports whether the settings add or leave out a member, by the name that the
// server has for it.
func (s *Settings) Sets(name string) bool {
	if s == nil {
		return false
	}
	return s.omit[name] || slices.ContainsFunc(s.extra, func(m member) bool {
		return m.name == name || m.name == s.nameOf(name, Completion)
	})
}

// MaxTokens returns the most tokens that an answer may have, of the limit that the item or
// the run sets; 0 if the settings leave it out, or if nothing sets one.
func (s *Settings) MaxTokens(n int64) int64 {
	switch {
	case s == nil:
		return n
	case s.omit["max_tokens"], s.omit["max_completion_tokens"], s.omit["max_output_tokens"],
		s.maxTokens != "" && s.omit[s.maxTokens]:
		return 0
	case n > 0:
		return n
	}
	for _, m := range s.extra {
		switch m.name {
		case "max_tokens", "max_completion_tokens", "max_output_tokens":
			n, _ := strconv.ParseInt(string(m.value), 10, 64) // the server refuses what is not a number
			return max(0, n)
		}
	}
	return 0
}

// Target returns the endpoint that the item's request goes to: that of the settings,
// unless the line names its own. A request that the endpoint cannot take is Invalid.
func (s *Settings) Target(it *Item) (Endpoint, error) {
	if s == nil {
		return it.Endpoint, nil
	}
	e := it.Endpoint
	named := it.dialect != OpenAI && s.endpoint != "" && s.Path(it) == ""
	if named {
		switch s.endpoint {
		case "completions":
			e = Completion
		default:
			e = Endpoint(s.endpoint)
		}
	}
	takes := e == it.Endpoint || (it.Endpoint == Completion || it.Endpoint == Chat && e != Completion) &&
		e != Rerank && e != Score
	switch {
	case !takes:
		return e, &fault.Error{Kind: fault.Invalid, Class: fault.Refused,
			Err:    fault.New(fault.Invalid, "a line with %s can't be sent to the endpoint %q", it.key, s.endpoint),
			Remedy: "set request.endpoint to one that takes such lines, or leave it out"}
	case s.system != nil && e == Completion && it.dialect == Plain:
		return e, &fault.Error{Kind: fault.Invalid, Class: fault.Refused,
			Err:    fault.New(fault.Invalid, "a prompt for the completions endpoint has no system message"),
			Remedy: `set request.endpoint = "chat", or remove request.system`}
	}
	return e, nil
}

// Apply appends the body of a request to the endpoint e, made of one that Item.Body
// returned. The members that the settings do not concern stay as they are.
func (s *Settings) Apply(dst []byte, it *Item, e Endpoint, body []byte) []byte {
	w := row{b: append(dst, '{')}
	written := map[string]bool{}
	o := jsonl.ReadKnownObject(body)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		name := s.nameOf(string(m.Name), e)
		switch {
		case s.omit[string(m.Name)], s.omit[name], written[name], !it.sends(string(m.Name), e):
			continue
		case name == "model":
			w.raw(name, s.model(it, m.Value))
		case name == "messages" || name == "input" && string(m.Name) == "messages":
			w.raw(name, s.messages(it, e, m.Value))
		case name == "prompt" && e == Chat:
			name = "messages"
			w.raw(name, s.messages(it, e, slices.Concat([]byte(`[{"role":"user","content":`), m.Value, []byte("}]"))))
		case name == "logprobs" && e == Chat && isNumber(m.Value): // of a completion
			w.raw(name, []byte("true"))
			w.raw("top_logprobs", m.Value)
		case name == string(m.Name): // as it was written, with its escapes
			w.b = append(append(append(append(w.b, m.RawName...), ':'), m.Value...), ',')
		default:
			w.b = append(append(append(jsonl.AppendQuoted(w.b, name), ':'), m.Value...), ',')
		}
		written[name] = true
	}
	if e == Responses && s.system != nil && !written["instructions"] {
		w.raw("instructions", s.system)
	}
	for _, x := range s.extra {
		if !written[x.name] && !s.omit[x.name] {
			w.b = append(append(jsonl.AppendQuoted(w.b, x.name), ':'), x.value...)
			w.b = append(w.b, ',')
		}
	}
	w.end('}')
	return w.b[:len(w.b)-1] // without the comma
}

// nameOf returns the endpoint's name of a member.
func (s *Settings) nameOf(name string, e Endpoint) string {
	switch name {
	case "max_tokens", "max_completion_tokens":
		switch {
		case s.maxTokens != "":
			return s.maxTokens
		case e == Responses:
			return "max_output_tokens"
		}
	case "prompt":
		if e == Responses || e == Embeddings {
			return "input"
		}
	case "messages":
		if e == Responses {
			return "input"
		}
	}
	return name
}

// sends reports whether a request to the endpoint has the member. Endpoints without
// sampling get only what the line has and the model, and OpenAI's responses know
// no seed.
func (it *Item) sends(name string, e Endpoint) bool {
	switch {
	case name == "model" || e == Chat || e == Completion:
		return true
	case e == Responses && name != "seed" && name != "stop" && name != "logprobs":
		return true
	}
	return slices.ContainsFunc(it.body, func(m jsonl.Member) bool { return string(m.Name) == name })
}

// messages returns the messages of a chat, with the system message if they have none.
func (s *Settings) messages(it *Item, e Endpoint, messages []byte) []byte {
	if s.system == nil || e != Chat || it.hasSystem() {
		return messages
	}
	return slices.Concat([]byte(`[{"role":"system","content":`), s.system, []byte("},"), messages[1:])
}

// hasSystem reports whether a chat has a message of the system or the developer.
func (it *Item) hasSystem() bool {
	_, prompt := it.Prompt()
	if len(prompt) == 0 || prompt[0] != '[' {
		return false
	}
	a := jsonl.ReadKnownArray(prompt)
	for e, ok := a.Next(); ok; e, ok = a.Next() {
		o := jsonl.ReadKnownObject(e)
		for m, ok := o.Next(); ok; m, ok = o.Next() {
			if string(m.Name) == "role" && (is(m.Value, "system") || is(m.Value, "developer")) {
				return true
			}
		}
	}
	return false
}

// model returns the name that is sent for the run's model: the one that the run has for
// the line's own model, else the engine's for the run's.
func (s *Settings) model(it *Item, name []byte) []byte {
	for _, m := range it.body {
		if it.dialect == OpenAI && string(m.Name) == "model" && !slices.Equal(m.Value, name) {
			if to, ok := acceptedModel(m.Value, s.run); ok && to != "" {
				return jsonl.AppendString(nil, to)
			}
		}
	}
	text, ok := jsonl.Unquote(nil, name)
	if !ok {
		return name
	}
	for _, key := range []string{string(text), config.AnyModel} {
		if to := s.models[key]; to != "" {
			return jsonl.AppendString(nil, to)
		}
	}
	return name
}
