// Package hub reads models from Hugging Face's hub, or a mirror of it, by its HTTP API:
// which files a revision has, with their sizes and digests, and their bytes.
//
// A download that breaks goes on where it was. Its bytes are verified by the digest that
// the hub tells: a reader ends with a fault instead of io.EOF if they differ. The token is
// sent to the hub alone, never to the servers of files that it redirects to, and stands in
// no error.
package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"rollout/shared/fault"
	"rollout/shared/models"
	"rollout/shared/retry"
)

// DefaultURL is the address of Hugging Face's hub.
const DefaultURL = "https://huggingface.co"

// DefaultRevision is the branch that a model is taken from if its user names none.
const DefaultRevision = "main"

const (
	maxAnswer = 64 << 20 // of the list of a model's files
	// listLimit bounds the answer to which files there are. A download has no limit of its
	// own, but one for the headers, and one for a time without any byte.
	listLimit   = time.Minute
	headerLimit = time.Minute
	stallLimit  = time.Minute
)

// Hub is a client. The zero value asks Hugging Face's hub without a token.
type Hub struct {
	URL    string       // "" is DefaultURL
	Token  string       // of gated models; optional
	Client *http.Client // nil is http.DefaultClient
	Retry  retry.Policy // of requests that failed
}

// FromEnvironment returns a Hub with the address and the token of the variables that Hugging
// Face's own programs read.
func FromEnvironment(getenv func(string) string) Hub {
	return Hub{URL: getenv("HF_ENDPOINT"), Token: getenv("HF_TOKEN"), Client: &http.Client{Transport: transport()},
		Retry: retry.Policy{Tries: 8, Base: time.Second, Max: 30 * time.Second}}
}

// Model is a revision of a model.
type Model struct {
	Name   string
	Commit string
	Files  []File
}

// File is a file of a model.
type File struct {
	models.Listed
	digest digest
}

// Find returns the files of a model at a revision: a branch, a tag or a commit.
func (h Hub) Find(ctx context.Context, name, revision string) (m Model, err error) {
	if err := models.CheckName(name); err != nil {
		return m, err
	}
	revision = cmp.Or(revision, DefaultRevision)
	err = h.Retry.Do(ctx, func(int) error {
		m, err = h.find(ctx, name, revision)
		return err
	})
	return m, fault.Wrap(err, "look for %s at the hub", name)
}

func (h Hub) find(ctx context.Context, name, revision string) (m Model, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listLimit,
		fault.New(fault.Unavailable, "it took longer than %s", listLimit))
	defer cancel()
	answer, err := h.get(ctx, "/api/models/"+name+"/revision/"+url.PathEscape(revision)+"?blobs=true", nil)
	if err != nil {
		return m, err
	}
	defer answer.Body.Close() // read only
	if err := h.status(answer, name); err != nil {
		return m, err
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	if err != nil {
		return m, unreachable(ctx, err)
	}
	if len(text) > maxAnswer {
		return m, fault.New(fault.Corrupt, "its list of files is longer than %d bytes", maxAnswer)
	}
	return parse(name, text)
}

// listing is the hub's answer.
type listing struct {
	SHA      string `json:"sha"`
	Siblings []struct {
		Path string `json:"rfilename"`
		Size *int64 `json:"size"`
		Blob string `json:"blobId"`
		LFS  *struct {
			SHA256 string `json:"sha256"`
			Size   int64  `json:"size"`
		} `json:"lfs"`
	} `json:"siblings"`
}

// parse reads a list of files. Who stores or fetches them checks their paths; see
// models.Cache.
func parse(name string, text []byte) (m Model, err error) {
	var l listing
	if err := json.Unmarshal(text, &l); err != nil {
		return m, fault.WithKind(fault.Corrupt, err, "read its list of files")
	}
	if !models.IsCommit(l.SHA) {
		return m, fault.New(fault.Corrupt, "its list of files names no commit")
	}
	m = Model{Name: name, Commit: l.SHA}
	for _, s := range l.Siblings {
		f := File{Listed: models.Listed{Path: s.Path}}
		switch {
		case s.LFS != nil:
			f.Size, f.digest = s.LFS.Size, digest{sha256Hex: s.LFS.SHA256}
		case s.Size != nil:
			f.Size, f.digest = *s.Size, digest{gitHex: s.Blob}
		default:
			return m, fault.New(fault.Corrupt, "its list has no size of %.128q", s.Path)
		}
		if !f.digest.valid() || f.Size < 0 {
			return m, fault.New(fault.Corrupt, "its list has no digest or a negative size of %.128q", s.Path)
		}
		f.Digest = f.digest.hex()
		m.Files = append(m.Files, f)
	}
	return m, nil
}

// get sends a request. Its errors name neither the token nor an address, which for a file
// is signed.
func (h Hub) get(ctx context.Context, path string, header http.Header) (*http.Response, error) {
	base := strings.TrimSuffix(cmp.Or(h.URL, DefaultURL), "/")
	at, err := url.Parse(base)
	if err != nil || at.Host == "" || at.Scheme != "https" && at.Scheme != "http" {
		return nil, &fault.Error{Kind: fault.Invalid,
			Err:    fault.New(fault.Invalid, "%.128q is not the address of a hub", base),
			Remedy: "write one such as " + DefaultURL + " as HF_ENDPOINT"}
	}
	if h.Token != "" && at.Scheme == "http" && !loopback(at.Hostname()) {
		return nil, &fault.Error{Kind: fault.Invalid, Remedy: "use https in HF_ENDPOINT",
			Err: fault.New(fault.Invalid, "the hub's address %.128q would send the token without encryption", base)}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the request to the hub can't be written")
	}
	for key, values := range header {
		r.Header[key] = values
	}
	if h.Token != "" {
		r.Header.Set("Authorization", "Bearer "+h.Token)
	}
	client := *cmp.Or(h.Client, http.DefaultClient)
	client.CheckRedirect = redirect
	answer, err := client.Do(r)
	if err != nil {
		return nil, unreachable(ctx, err)
	}
	return answer, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

const maxRedirects = 10

// redirect keeps the token from other hosts: Go's client would send it to those below the
// hub's own name, whose signed addresses work without it alone.
func redirect(r *http.Request, via []*http.Request) error {
	switch {
	case len(via) >= maxRedirects:
		return fault.New(fault.Unavailable, "it redirects more than %d times", maxRedirects)
	case via[0].URL.Scheme == "https" && r.URL.Scheme != "https":
		return fault.New(fault.Denied, "it redirects to an address without encryption")
	case r.URL.Host != via[0].URL.Host:
		r.Header.Del("Authorization")
	}
	return nil
}

// transport is the default one, with a limit for the headers. It unpacks nothing: the bytes
// of files count.
func transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout, t.DisableCompression = headerLimit, true
	return t
}

// unreachable translates the error of a request or of reading its answer.
func unreachable(ctx context.Context, err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	var own *fault.Error
	if errors.As(err, &own) {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		return fault.Wrap(cause, "ask the hub")
	}
	return fault.WithKind(fault.Unavailable, err, "the hub can't be reached")
}

// status translates the status of an answer that is not good.
func (h Hub) status(answer *http.Response, name string) error {
	code := answer.StatusCode
	switch {
	case code == http.StatusOK || code == http.StatusPartialContent:
		return nil
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		remedy := "accept the model's terms at the hub with the account of the token, or correct the name"
		if h.Token == "" {
			remedy = "set HF_TOKEN to a token that may read it, or correct the name; machines take the secret hf-token"
		}
		return &fault.Error{Kind: fault.Denied, Remedy: remedy,
			Err: fault.New(fault.Denied, "the hub does not show %s (status %d)", name, code)}
	case code == http.StatusNotFound:
		return &fault.Error{Kind: fault.NotFound,
			Err:    fault.New(fault.NotFound, "the hub has no such model, revision or file"),
			Remedy: "correct the name, such as org/model@revision"}
	case code == http.StatusTooManyRequests:
		return &fault.Error{Kind: fault.Throttled, RetryAfter: min(retry.After(answer.Header), stallLimit),
			Err: fault.New(fault.Throttled, "the hub asks to come later")}
	case code >= http.StatusInternalServerError:
		return fault.New(fault.Unavailable, "the hub answers with status %d", code)
	}
	return fault.New(fault.Invalid, "the hub answers with status %d", code)
}
