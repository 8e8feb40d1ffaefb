// Package vendors has a scripted server for each way in which inference servers and hosted APIs list models, report
// their health and refuse requests: OpenAI, Azure, vLLM, SGLang, llama.cpp, Ollama, LiteLLM and TGI.
//
// The replies are those of the vendors' documentation and of public reports. What a request gets depends on its text
// alone: the model, the key and the words of the prompt say which reply is wanted. A server keeps no state but whether
// it is loading, which its creator says. The package generates no text: every good answer is "ok".
package vendors

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

// What a request must say to get a reply other than an answer.
const (
	Key      = "sk-right-0123456789" // the only key that is accepted; without a key, any is
	Model    = "served"              // the model that is served
	Missing  = "missing"             // a model that is not
	TooLong  = "PLEASE-TOO-LONG"     // in a prompt: it does not fit the context
	Limited  = "PLEASE-LIMITED"      // in a prompt: too many requests a minute
	Full     = "PLEASE-FULL"         // in a prompt: the server has too much to do
	Filtered = "PLEASE-FILTERED"     // in a prompt: it is against the content policy
)

// Reply is the status and the body of a response. The zero Reply is an answer.
type Reply struct {
	Status     int
	Body       string
	RetryAfter string // the header of that name
}

// Vendor is one kind of server.
type Vendor struct {
	Name string
	Base string // path of the base URL. Example: "/v1"

	Models   Reply // of GET Base/models; the zero Reply is a 404 of the vendor's
	Health   Reply // of GET /health
	Loading  Reply // of GET /health and of all requests, while the model is being loaded; the zero Reply: never
	NoRoute  Reply
	Denied   Reply // of a wrong key
	Missing  Reply // of an unknown model; the zero Reply: the server answers to any name
	TooLong  Reply // the zero Reply: the server cuts the prompt
	Limited  Reply
	Full     Reply
	Filtered Reply

	KeyHeader string            // of the key, if it is not a bearer token
	Open      bool              // lists and health need no key
	Query     map[string]string // that every request must have
}

// Options are the state of a server.
type Options struct {
	Loading bool
	OnAsked func(method, path string) // called at each request; may be nil
}

// Handler returns a server of the vendor. It is safe for concurrent use.
func (v Vendor) Handler(o Options) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if o.OnAsked != nil {
			o.OnAsked(r.Method, r.URL.Path)
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil {
			return // the client went away
		}
		send(w, v.reply(o, r, string(body)))
	})
}

func (v Vendor) reply(o Options, r *http.Request, body string) Reply {
	path, listing := r.URL.Path, r.Method == http.MethodGet
	for name, value := range v.Query {
		if r.URL.Query().Get(name) != value {
			return v.NoRoute
		}
	}
	switch {
	case !v.accepts(r) && !(listing && v.Open):
		return v.Denied
	case listing && path == v.Base+"/models":
		return or(v.Models, v.NoRoute)
	case o.Loading && v.Loading.Status > 0 && (path == "/health" || !listing):
		return v.Loading
	case listing && path == "/health":
		return or(v.Health, v.NoRoute)
	case !listing && path == v.Base+"/chat/completions":
		return v.completion(body)
	}
	return v.NoRoute
}

func or(r, otherwise Reply) Reply {
	if r.Status == 0 {
		return otherwise
	}
	return r
}

// accepts reports whether a request has the key, or none.
func (v Vendor) accepts(r *http.Request) bool {
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if v.KeyHeader != "" {
		key = r.Header.Get(v.KeyHeader)
	}
	return key == Key
}

// completion returns the reply to a chat.
func (v Vendor) completion(body string) Reply {
	if strings.Contains(body, `"model":"`+Missing+`"`) && v.Missing.Status > 0 {
		return v.Missing
	}
	for word, r := range map[string]Reply{TooLong: v.TooLong, Limited: v.Limited, Full: v.Full, Filtered: v.Filtered} {
		if strings.Contains(body, word) && r.Status > 0 {
			return r
		}
	}
	return Reply{Status: http.StatusOK, Body: answer}
}

const answer = `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"` + Model + `",` +
	`"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],` +
	`"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}`

func send(w http.ResponseWriter, r Reply) {
	contentType := "text/plain"
	if strings.HasPrefix(r.Body, "{") {
		contentType = "application/json"
	}
	w.Header().Set("Content-Type", contentType)
	if r.RetryAfter != "" {
		w.Header().Set("Retry-After", r.RetryAfter)
	}
	w.WriteHeader(r.Status)
	_, _ = io.WriteString(w, r.Body) // fails only if the client went away
}

// list returns a reply with a list of two models.
func list(owner string) Reply {
	const entry = `{"id":%q,"object":"model","created":1,"owned_by":%q}`
	return Reply{Status: http.StatusOK, Body: fmt.Sprintf(`{"object":"list","data":[`+entry+`,`+entry+`]}`,
		Model, owner, "other", owner)}
}
