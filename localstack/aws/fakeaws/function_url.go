package fakeaws

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"
)

// maxPayload is the most bytes of an event of a function URL. A body that is not text is
// base64 in it, so that it has at most three quarters of that.
const maxPayload = 6 << 20

// FunctionURL returns the function as its URL serves it to callers whose signature is valid. It
// refuses what Lambda refuses: bodies that do not fit into an event.
func (c *Cloud) FunctionURL(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		event := urlEvent(r, body)
		if len(event) > maxPayload {
			http.Error(w, `{"Message":"Request Entity Too Large"}`, http.StatusRequestEntityTooLarge)
			return
		}
		reply, err := c.Invoke(name, event)
		// A streamed answer starts with its status and eight zero bytes.
		head, rest, streamed := bytes.Cut(reply.Body, make([]byte, 8))
		var status struct {
			StatusCode int
			Headers    map[string]string
		}
		if err != nil || reply.Failed || !streamed || json.Unmarshal(head, &status) != nil {
			http.Error(w, `{"Message":"Internal Server Error"}`, http.StatusBadGateway)
			return
		}
		for k, v := range status.Headers {
			if !strings.EqualFold(k, "Content-Length") {
				w.Header().Set(k, v)
			}
		}
		w.WriteHeader(status.StatusCode)
		_, _ = w.Write(rest) // the client may have left
	})
}

// urlEvent is the event of a request, in the format 2.0.
func urlEvent(r *http.Request, body []byte) []byte {
	const domain = "x.lambda-url." + Region + ".on.aws"
	headers := map[string]string{"host": domain}
	for k := range r.Header {
		headers[strings.ToLower(k)] = strings.Join(r.Header.Values(k), ",")
	}
	text := strings.HasPrefix(r.Header.Get("Content-Type"), "application/json")
	content := string(body)
	if !text {
		content = base64.StdEncoding.EncodeToString(body)
	}
	event, err := json.Marshal(map[string]any{
		"version": "2.0", "rawPath": r.URL.Path, "rawQueryString": r.URL.RawQuery, "headers": headers,
		"body": content, "isBase64Encoded": !text,
		"requestContext": map[string]any{"domainName": domain,
			"authorizer": map[string]any{"iam": map[string]any{"accountId": "000000000000"}},
			"timeEpoch":  time.Now().UnixMilli(),
			"http": map[string]any{"method": r.Method, "path": r.URL.Path, "protocol": "HTTP/1.1",
				"sourceIp": "198.51.100.7"}},
	})
	if err != nil { // it consists of texts
		panic(err)
	}
	return event
}
