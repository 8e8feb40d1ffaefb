package onlinewire

import (
	"encoding/json"
	"net/http"
	"strings"

	"rollout/shared/listen"
)

// Problem is an error in OpenAI's form.
type Problem struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

// Types of problems.
const (
	InvalidRequest = "invalid_request_error"
	RateLimit      = "rate_limit_error"
	ServerError    = "server_error"
)

// WriteProblem answers with an error.
func WriteProblem(w http.ResponseWriter, status int, p Problem) {
	listen.WriteJSON(w, status, map[string]Problem{"error": p})
}

// Event returns the problem as an event that ends a stream.
func (p Problem) Event() []byte {
	b, err := json.Marshal(map[string]Problem{"error": p})
	if err != nil { // texts always have a JSON form
		return nil
	}
	return append(append([]byte("data: "), b...), "\n\n"...)
}

// passedHeaders are the headers of a server's answer that clients get, in lower case; those
// that begin with passedPrefixes as well. All others are between rollout and the server.
var (
	passedHeaders = []string{"content-type", "content-encoding", "cache-control", "retry-after", "retry-after-ms",
		"x-request-id", "x-should-retry"}
	passedPrefixes = []string{"openai-", "x-ratelimit-"}
)

// CopyHeaders copies the headers of a server's answer that clients get.
func CopyHeaders(to, from http.Header) {
	for name, values := range from {
		lower := strings.ToLower(name)
		passes := false
		for _, h := range passedHeaders {
			passes = passes || lower == h
		}
		for _, p := range passedPrefixes {
			passes = passes || strings.HasPrefix(lower, p)
		}
		if passes {
			to[name] = values
		}
	}
}

// IsStream reports whether an answer is a stream of server-sent events.
func IsStream(h http.Header) bool {
	return strings.HasPrefix(strings.ToLower(h.Get("Content-Type")), "text/event-stream") &&
		h.Get("Content-Encoding") == ""
}
