package config

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Request says what requests have besides a row's own members: the table [request]
// of a run, and the same keys in [engine] of a deployment. What the run says counts
// over what the engine says; what a row says counts over both.
type Request struct {
	// Endpoint is where plain, Bedrock and Vertex rows go: one of Endpoints, or a path
	// from the root of the server, such as "/v2/rerank". "" is what suits the row.
	Endpoint string `toml:"endpoint" json:"endpoint,omitempty"`
	// Extra is members of the request's body, for rows that don't have them.
	Extra map[string]any `toml:"extra" json:"extra,omitempty"`
	// Omit is members that are never sent. Example: "seed".
	Omit []string `toml:"omit" json:"omit,omitempty"`
	// Headers are HTTP headers. In a deployment a value "secret:NAME" is that secret.
	Headers map[string]string `toml:"headers" json:"headers,omitempty"`
	// Query is added to the URL. Example: api-version of Azure.
	Query map[string]string `toml:"query" json:"query,omitempty"`
	// MaxTokensField is the name by which the server knows max_tokens. Example:
	// "max_completion_tokens".
	MaxTokensField string `toml:"max_tokens_field" json:"max_tokens_field,omitempty"`
	// System is the system message of chats that have none.
	System string `toml:"system" json:"system,omitempty"`
	// BodyModel names the models of rows that are accepted besides the run's, each with
	// the name that is sent; "" sends the run's. The name AnyModel stands for all. In a
	// deployment, the names are those of runs' models.
	BodyModel map[string]string `toml:"body_model" json:"body_model,omitempty"`
}

// AnyModel is the name in Request.BodyModel that stands for all models.
const AnyModel = "*"

// takesChats reports whether an endpoint may answer chats: a path may.
func takesChats(endpoint string) bool {
	return !slices.Contains([]string{"completions", "embeddings", "rerank", "score"}, endpoint)
}

// Endpoints are the names of Request.Endpoint.
func Endpoints() []string {
	return []string{"chat", "completions", "responses", "embeddings", "rerank", "score"}
}

// SecretPrefix begins the value of a header that is a secret, before its name.
const SecretPrefix = "secret:"

// IsZero reports whether the request has no settings.
func (r *Request) IsZero() bool {
	return r == nil || r.Endpoint == "" && len(r.Extra) == 0 && len(r.Omit) == 0 && len(r.Headers) == 0 &&
		len(r.Query) == 0 && r.MaxTokensField == "" && r.System == "" && len(r.BodyModel) == 0
}

// Canonical returns the settings as JSON with sorted keys; nil without settings. Item
// ids are computed from these bytes. Headers and query do not count: they do
// not change what the model reads.
func (r *Request) Canonical() []byte {
	if r.IsZero() {
		return nil
	}
	c := *r
	c.Headers, c.Query = nil, nil
	c.Omit = slices.Sorted(slices.Values(r.Omit))
	b, err := json.Marshal(c)
	if err != nil { // a value that is not JSON, which Check refuses
		return nil
	}
	return b
}

// Over returns the settings of r over those of base: the deployment's.
func (r *Request) Over(base Request) Request {
	out := base
	out.BodyModel = nil // the two have other names
	if r == nil {
		return out
	}
	if r.Endpoint != "" {
		out.Endpoint = r.Endpoint
	}
	if r.MaxTokensField != "" {
		out.MaxTokensField = r.MaxTokensField
	}
	if r.System != "" {
		out.System = r.System
	}
	out.Omit = slices.Concat(base.Omit, r.Omit)
	out.Extra, out.Headers, out.Query = union(base.Extra, r.Extra), union(base.Headers, r.Headers), union(base.Query,
		r.Query)
	return out
}

// union returns the members of both maps, of equal names those of over.
func union[V any](base, over map[string]V) map[string]V {
	if len(over) == 0 {
		return base
	}
	out := maps.Clone(base)
	if out == nil {
		out = map[string]V{}
	}
	maps.Copy(out, over)
	return out
}

const (
	maxRequestNames = 64      // of each map or list
	maxRequestBytes = 8 << 10 // of the whole as JSON; it is in every manifest
)

// ownMembers are the members of requests that extra can't set, and how to set them.
var ownMembers = map[string]string{
	"model": "set model.uri", "messages": "give them in the rows", "prompt": "give it in the rows",
	"input": "give it in the rows", "n": "set sampling.n",
	"stream":         `set request.omit = ["stream"] for whole answers`,
	"stream_options": `set request.omit = ["stream_options"] to leave it out`,
}

// check checks the settings. Secrets says that headers may name secrets.
func (r *Request) check(c *checker, at string, secrets bool) {
	if r.IsZero() {
		return
	}
	c.text(at+".endpoint", r.Endpoint, maxText)
	if r.Endpoint != "" && !strings.HasPrefix(r.Endpoint, "/") && !slices.Contains(Endpoints(), r.Endpoint) {
		c.add(at+".endpoint", "%s is not an endpoint: use one of %s, or a path such as \"/v2/rerank\"",
			quote(r.Endpoint), strings.Join(Endpoints(), ", "))
	}
	for _, name := range sortedKeys(r.Extra) {
		if remedy := ownMembers[name]; remedy != "" {
			c.add(join(at+".extra", name), "can't be set here: %s", remedy)
		}
		if tensor := tensorIn(name, r.Extra[name]); tensor != "" {
			c.add(join(at+".extra", name), "has the tensor %s: rows bring tensors, where engine.tensors allows it", tensor)
		}
		c.jsonValue(join(at+".extra", name), r.Extra[name])
	}
	for i, name := range r.Omit {
		if name == "" || name == "model" || name == "messages" || name == "prompt" {
			c.add(element(at+".omit", i), "%s can't be left out of a request: remove it", quote(name))
		}
		c.text(element(at+".omit", i), name, maxName)
	}
	for name, value := range r.Headers {
		r.checkHeader(c, join(at+".headers", name), name, value, secrets)
	}
	for name, value := range r.Query {
		c.text(join(at+".query", name), value, maxText)
	}
	c.text(at+".max_tokens_field", r.MaxTokensField, maxName)
	if !strings.HasPrefix(r.MaxTokensField, "max_") && r.MaxTokensField != "" && r.MaxTokensField != "n_predict" {
		c.add(at+".max_tokens_field", "%s is not a name for the longest answer: use max_completion_tokens, "+
			"max_output_tokens or the like", quote(r.MaxTokensField))
	}
	if r.System != "" && !takesChats(r.Endpoint) {
		c.add(at+".system", "%s has no system message: set endpoint to \"chat\" or \"responses\", or remove it",
			quote(r.Endpoint))
	}
	for name, value := range r.BodyModel {
		c.text(join(at+".body_model", name), value, maxText)
	}
	counts := []int{len(r.Extra), len(r.Omit), len(r.Headers), len(r.Query), len(r.BodyModel)}
	if n := slices.Max(counts); n > maxRequestNames {
		c.add(at, "a table or list has %d entries, at most %d are allowed", n, maxRequestNames)
	}
	if b, err := json.Marshal(r); err == nil && len(b) > maxRequestBytes {
		c.add(at, "takes %d bytes, at most %d are allowed: put long texts into the rows", len(b), maxRequestBytes)
	}
}

// tensorIn returns the name of the first tensor at any depth of a member, or "": see
// dialect.Item.CheckTensors.
func tensorIn(name string, value any) string {
	if strings.HasSuffix(name, "_embeds") {
		return name
	}
	switch v := value.(type) {
	case map[string]any:
		for _, key := range sortedKeys(v) {
			if tensor := tensorIn(key, v[key]); tensor != "" {
				return tensor
			}
		}
	case []any:
		for _, x := range v {
			if tensor := tensorIn("", x); tensor != "" {
				return tensor
			}
		}
	case []map[string]any:
		for _, x := range v {
			if tensor := tensorIn("", x); tensor != "" {
				return tensor
			}
		}
	}
	return ""
}

func (r *Request) checkHeader(c *checker, field, name, value string, secrets bool) {
	for _, b := range []byte(name) {
		if b <= ' ' || b >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, rune(b)) {
			c.add(field, "is not a header's name: remove characters other than letters, digits and -")
			break
		}
	}
	switch {
	case name == "" || slices.Contains([]string{"host", "content-length", "transfer-encoding", "connection",
		"content-type"}, strings.ToLower(name)):
		c.add(field, "is set by rollout: remove it")
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		c.add(field, "has control characters: write it in one line")
	case strings.HasPrefix(value, SecretPrefix) && !secrets:
		c.add(field, "only a deployment's config names secrets: set the header in [engine]")
	case strings.HasPrefix(value, SecretPrefix):
		c.label(field, strings.TrimPrefix(value, SecretPrefix), maxSecret, "")
	}
	c.text(field, value, maxText)
}

// jsonValue checks that a value can be written as JSON.
func (c *checker) jsonValue(field string, v any) {
	if _, err := json.Marshal(v); err != nil || describe(v) == "a date or time" {
		c.add(field, "is not a JSON value: use text, a number, a boolean, a list or a table")
	}
}

// normalizeRequest replaces body_model = "override" by the table that it stands for.
func normalizeRequest(c *checker, x any, at string) {
	m, ok := x.(map[string]any)
	if !ok {
		return // the binder reports it
	}
	s, ok := m["body_model"].(string)
	switch {
	case !ok:
	case at == "engine": // a server has names for models, and no rows
		delete(m, "body_model")
		c.add("engine.body_model", "must be a table of the server's own names of models, is %s: "+
			"rows of other models are accepted by request.body_model", quote(s))
	case s == "override":
		m["body_model"] = map[string]any{AnyModel: ""}
	default:
		delete(m, "body_model")
		c.add(join(at, "body_model"), "must be \"override\", or a table of model names, is %s", quote(s))
	}
}

// secretsOf returns the names of the secrets in the headers.
func (r *Request) secretsOf() (names []string) {
	for _, name := range sortedKeys(r.Headers) {
		if s, ok := strings.CutPrefix(r.Headers[name], SecretPrefix); ok {
			names = append(names, s)
		}
	}
	return names
}
