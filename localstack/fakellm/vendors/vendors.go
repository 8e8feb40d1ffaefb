// Package vendors has a scripted server for each way in which inference servers and hosted APIs list models, report
// their health and refuse requests: OpenAI, Azure, vLLM, SGLang, llama.cpp, Ollama, LiteLLM and TGI.
//
// The replies are those of the vendors' source, documentation and of public reports, which each vendor's comment names.
// What a request gets depends on its text alone: the model, the key and the words of the prompt say which reply is
// wanted. A server keeps no state but whether it is loading, which its creator says. The package generates no text:
// every good answer is "ok".
package vendors

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// What a request must say to get a reply other than an answer.
const (
	Key      = "sk-right-0123456789" // the only key that is accepted
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

	Models    Reply   // of GET Base/models; the zero Reply is a 404 of the vendor's
	Health    Reply   // of GET /health; the zero Reply is a 404, too
	Loading   Loading // instead of others, while the model is being loaded
	Answer    string  // the body of a good answer to a chat: "ok", of 3 and 1 tokens
	OnlyChats Reply   // to a completion, of a model for chats; the zero Reply is a 404
	NoRoute   Reply
	Denied    Reply // of a wrong key
	Missing   Reply // of an unknown model; the zero Reply: the server answers to any name
	TooLong   Reply // the zero Reply: the server cuts the prompt
	Limited   Reply
	Full      Reply
	Filtered  Reply

	KeyHeader string            // of the key, if it is not a bearer token
	Public    []string          // paths of GET that need no key, below Base or the root
	Query     map[string]string // that every request must have
}

// Loading has the replies of a server that is loading its model. A zero Reply is the usual one.
type Loading struct{ Models, Health, Chats Reply }

// All returns all vendors.
func All() []Vendor {
	return []Vendor{openAI(), azure(), vllm(), sglang(), llamaCPP(), ollama(), liteLLM(), tgi()}
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
	for name, value := range v.Query {
		if r.URL.Query().Get(name) != value {
			return v.NoRoute
		}
	}
	var loading Loading
	if o.Loading {
		loading = v.Loading
	}
	path := strings.TrimPrefix(r.URL.Path, v.Base)
	get := r.Method == http.MethodGet
	switch {
	case !v.accepts(r) && !(get && slices.Contains(v.Public, path)):
		return v.Denied
	case get && path == "/models":
		return cmp.Or(loading.Models, v.Models, v.NoRoute)
	case get && path == "/health":
		return cmp.Or(loading.Health, v.Health, v.NoRoute)
	case !get && path == "/completions":
		return cmp.Or(loading.Chats, v.OnlyChats, v.NoRoute)
	case !get && path == "/chat/completions":
		return cmp.Or(loading.Chats, v.chat(body))
	}
	return v.NoRoute
}

// accepts reports whether a request has the key.
func (v Vendor) accepts(r *http.Request) bool {
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if v.KeyHeader != "" {
		key = r.Header.Get(v.KeyHeader)
	}
	return key == Key
}

// chat returns the reply to a chat.
func (v Vendor) chat(body string) Reply {
	if strings.Contains(body, `"model":"`+Missing+`"`) && v.Missing.Status > 0 {
		return v.Missing
	}
	for word, r := range map[string]Reply{TooLong: v.TooLong, Limited: v.Limited, Full: v.Full, Filtered: v.Filtered} {
		if strings.Contains(body, word) && r.Status > 0 {
			return r
		}
	}
	return Reply{Status: http.StatusOK, Body: v.Answer}
}

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

// list returns a reply with a list of models.
func list(owner string, models ...string) Reply {
	var entries []string
	for _, name := range models {
		entries = append(entries, fmt.Sprintf(`{"id":%q,"object":"model","created":1,"owned_by":%q}`, name, owner))
	}
	return Reply{Status: http.StatusOK, Body: `{"object":"list","data":[` + strings.Join(entries, ",") + `]}`}
}
