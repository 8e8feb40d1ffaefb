package hub_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/shared/fault"
	"rollout/shared/hub"
	"rollout/shared/hub/hubtest"
	"rollout/shared/models"
	"rollout/shared/retry"
)

const (
	name  = "acme/small"
	token = "hf_verysecret"
)

// soon retries after at most a microsecond.
var soon = retry.Policy{Base: time.Microsecond, Max: time.Microsecond}

func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // it never fails
	return b
}

func files() map[string][]byte {
	return map[string][]byte{
		"model.safetensors": noise(300_000), "config.json": []byte("{}"), "a folder/ü?#.txt": []byte("odd name"),
	}
}

// read finds the model and reads a file of it.
func read(t *testing.T, h hub.Hub, path string) ([]byte, error) {
	t.Helper()
	m, err := h.Find(t.Context(), name, "")
	if err != nil {
		return nil, err
	}
	r, err := hub.Files{Hub: h, Model: m}.Open(t.Context(), models.Listed{Path: path})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func TestHubReadsFiles(t *testing.T) {
	t.Parallel()
	server := hubtest.New(t, files())
	server.Token = token
	h := hub.Hub{URL: server.URL, Token: token, Retry: soon}
	for path, want := range server.Files {
		if got, err := read(t, h, path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", path, len(got), err)
		}
	}
	m, err := h.Find(t.Context(), name, "v1/x")
	if err != nil || m.Commit != hubtest.Commit || len(m.Files) != 3 {
		t.Errorf("%+v, %v", m, err)
	}
	if _, tokens := server.Requests(); len(tokens) > 0 {
		t.Errorf("the server of files got the token: %q", tokens)
	}
}

func TestHubSaysWhyAModelCannotBeRead(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		with   func(*hubtest.Hub, *hub.Hub)
		want   fault.Kind
		remedy string
	}{
		"gated, without a token": {func(s *hubtest.Hub, _ *hub.Hub) { s.Token = token }, fault.Denied, "HF_TOKEN"},
		"gated, another token": {func(s *hubtest.Hub, h *hub.Hub) { s.Token, h.Token = token, "hf_other" }, fault.Denied,
			"accept the model's terms"},
		"forbidden": {func(s *hubtest.Hub, h *hub.Hub) { s.Refuse, s.Refusals, h.Token = 403, 9, token }, fault.Denied,
			"accept the model's terms"},
		"no such model": {func(s *hubtest.Hub, _ *hub.Hub) { s.Refuse, s.Refusals = 404, 9 }, fault.NotFound,
			"correct the name"},
		"always down": {func(s *hubtest.Hub, _ *hub.Hub) { s.Refuse, s.Refusals = 503, 99 }, fault.Unavailable, ""},
		"overloaded":  {func(s *hubtest.Hub, _ *hub.Hub) { s.Refuse, s.Refusals = 429, 99 }, fault.Throttled, ""},
		"not a hub":   {func(_ *hubtest.Hub, h *hub.Hub) { h.URL = "ftp://x" }, fault.Invalid, "HF_ENDPOINT"},
		"a token in the clear": {func(_ *hubtest.Hub, h *hub.Hub) { h.URL, h.Token = "http://hub.example.com", token },
			fault.Invalid, "https"},
	} {
		server := hubtest.New(t, files())
		h := hub.Hub{URL: server.URL, Retry: soon}
		c.with(server, &h)
		_, err := read(t, h, "config.json")
		if !fault.Is(err, c.want) || !strings.Contains(fault.RemedyOf(err), c.remedy) {
			t.Errorf("%s: %v", what, err)
		}
		if err != nil && (strings.Contains(err.Error(), "hf_") || strings.Contains(err.Error(), "Signature")) {
			t.Errorf("%s: the error has a secret: %v", what, err)
		}
	}
}

// The server of files may have a name below the hub's, to which Go's client would send the
// token as well.
func TestTokenGoesToTheHubAlone(t *testing.T) {
	t.Parallel()
	for to, c := range map[string]struct {
		want fault.Kind
		sent bool
	}{"https://huggingface.co/other": {fault.Internal, true}, "https://cdn.huggingface.co/x": {fault.Internal, false},
		"https://huggingface.co:8443/x": {fault.Internal, false}, "http://huggingface.co/x": {fault.Denied, false}} {
		var sent []bool
		h := hub.Hub{Token: token, Retry: retry.Policy{Tries: 1}, Client: &http.Client{Transport: transportFunc(
			func(r *http.Request) (*http.Response, error) {
				sent = append(sent, r.Header.Get("Authorization") != "")
				if len(sent) == 1 {
					return &http.Response{StatusCode: 302, Header: http.Header{"Location": {to}}, Request: r, Body: http.NoBody}, nil
				}
				return &http.Response{StatusCode: 418, Header: http.Header{}, Request: r, Body: http.NoBody}, nil
			})}}
		_, err := h.Find(t.Context(), name, "")
		if c.want != fault.Internal && !fault.Is(err, c.want) ||
			c.want == fault.Internal && (len(sent) != 2 || sent[1] != c.sent) {
			t.Errorf("%s: sent %v, %v", to, sent, err)
		}
	}
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestHubComesBackAfterServerErrors(t *testing.T) {
	t.Parallel()
	for _, status := range []int{500, 502, 503, 429} {
		server := hubtest.New(t, files())
		server.Refuse, server.Refusals = status, 3
		got, err := read(t, hub.Hub{URL: server.URL, Retry: soon}, "config.json")
		if err != nil || string(got) != "{}" {
			t.Errorf("%d: %q, %v", status, got, err)
		}
	}
}

func TestDownloadGoesOnAfterABreak(t *testing.T) {
	t.Parallel()
	for what, whole := range map[string]bool{"by a range": false, "where the server knows no ranges": true} {
		server := hubtest.New(t, files())
		// Each answer brings some bytes more; without ranges, all begin anew.
		server.Break, server.Breaks, server.Whole = 40_000, 5, whole
		if whole {
			server.Break, server.Breaks = 200_000, 1
		}
		got, err := read(t, hub.Hub{URL: server.URL, Retry: soon}, "model.safetensors")
		if err != nil || !bytes.Equal(got, server.Files["model.safetensors"]) {
			t.Errorf("%s: %d bytes, %v", what, len(got), err)
		}
	}
}

func TestDownloadFailsAfterBreaksWithoutAByte(t *testing.T) {
	t.Parallel()
	server := hubtest.New(t, files())
	server.Break, server.Breaks = 0, 1000
	if _, err := read(t, hub.Hub{URL: server.URL, Retry: soon}, "model.safetensors"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
}

// stalling is a hub without ranges: the first answer of a file ends after some bytes, and
// all later ones bring one byte and then no more.
type stalling struct {
	list   string
	begins string // what the first answer brings
	asked  int
}

func (s *stalling) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := &http.Response{StatusCode: 200, Header: http.Header{}, Request: r}
	if strings.HasPrefix(r.URL.Path, "/api/") {
		answer.Body = io.NopCloser(strings.NewReader(s.list))
		return answer, nil
	}
	if s.asked++; s.asked == 1 && s.begins != "" {
		answer.Body = io.NopCloser(strings.NewReader(s.begins))
		return answer, nil
	}
	answer.Body = io.NopCloser(io.MultiReader(strings.NewReader("x"), untilEnd{r.Context()}))
	return answer, nil
}

// untilEnd is a body without a byte until its request ends.
type untilEnd struct{ ctx context.Context }

func (u untilEnd) Read([]byte) (int, error) {
	<-u.ctx.Done()
	return 0, u.ctx.Err()
}

func TestDownloadWithoutAByteForAMinuteSaysSo(t *testing.T) {
	t.Parallel()
	for what, begins := range map[string]string{"while it reads": "", "while it skips what it has": "xxxxx"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &stalling{begins: begins, list: `{"sha":"` + hubtest.Commit + `","siblings":[{"rfilename":"a","size":9,` +
					`"blobId":"0123456789012345678901234567890123456789"}]}`}
				h := hub.Hub{Client: &http.Client{Transport: s}, Retry: retry.Policy{Tries: 2, Base: time.Second}}
				_, err := read(t, h, "a")
				if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "no byte came for 1m0s") {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

func TestDownloadOfOtherBytesIsNeverWhole(t *testing.T) {
	t.Parallel()
	other := noise(300_000)
	other[299_999]++
	for what, served := range map[string][]byte{"changed": other, "longer": append(noise(300_000), 0)} {
		server := hubtest.New(t, files())
		server.Served = map[string][]byte{"model.safetensors": served}
		server.Break, server.Breaks = 100_000, 1
		_, err := read(t, hub.Hub{URL: server.URL, Retry: soon}, "model.safetensors")
		if !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestHostileListsAreRefused(t *testing.T) {
	t.Parallel()
	const digest = "0123456789012345678901234567890123456789"
	for what, text := range map[string]string{
		"no JSON":       `<html>`,
		"no commit":     `{"sha":"main","siblings":[]}`,
		"a path as one": `{"sha":"../../../../../../../../../etc/passwd","siblings":[]}`,
		"no size":       `{"sha":"` + hubtest.Commit + `","siblings":[{"rfilename":"a","blobId":"` + digest + `"}]}`,
		"a negative one": `{"sha":"` + hubtest.Commit + `","siblings":[{"rfilename":"a","size":-1,"blobId":"` +
			digest + `"}]}`,
		"no digest":      `{"sha":"` + hubtest.Commit + `","siblings":[{"rfilename":"a","size":1}]}`,
		"a path for one": `{"sha":"` + hubtest.Commit + `","siblings":[{"rfilename":"a","size":1,"blobId":"../../../x"}]}`,
	} {
		h := hub.Hub{Client: &http.Client{Transport: answering(text)}}
		if m, err := h.Find(t.Context(), name, ""); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %+v, %v", what, m, err)
		}
	}
	for _, name := range []string{"../x", "a/b/c", "", "a b", "-x", "a/..", "a?x=1"} {
		if _, err := (hub.Hub{}).Find(t.Context(), name, ""); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// answering answers each request with the text.
type answering string

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	body := io.NopCloser(strings.NewReader(string(a)))
	return &http.Response{StatusCode: 200, Header: http.Header{}, Request: r, Body: body}, nil
}

// What another program downloaded may have been changed since.
func TestCopyIsVerified(t *testing.T) {
	t.Parallel()
	server := hubtest.New(t, files())
	m, err := (hub.Hub{URL: server.URL, Retry: soon}).Find(t.Context(), name, "")
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		bytes string
		want  error
	}{"the hub's bytes": {"{}", nil}, "others": {"[]", errOther}} {
		files := hub.Copy{Model: m, From: memorySource(c.bytes)}
		listed, err := files.Listed([]models.Listed{{Path: "config.json", Size: 2}, {Path: "not of the hub", Size: 5}})
		if err != nil || len(listed) != 1 || listed[0].Digest == "" {
			t.Fatalf("%+v, %v", listed, err)
		}
		r, err := files.Open(t.Context(), listed[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(r); (err == nil) != (c.want == nil) || err != nil && !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = hub.Copy{Model: m}.Listed([]models.Listed{{Path: "config.json", Size: 3}})
	if !fault.Is(err, fault.Corrupt) {
		t.Errorf("another size: %v", err)
	}
}

var errOther = errors.New("other bytes")

type memorySource string

func (m memorySource) Open(context.Context, models.Listed) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(string(m))), nil
}

func TestServingTakesOneFormatOfTheWeights(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ has, want string }{
		"safetensors before all others": {
			"config.json model-00001-of-00002.safetensors model.safetensors.index.json pytorch_model.bin model.gguf " +
				"original/consolidated.00.pth tf_model.h5 flax_model.msgpack onnx/model.onnx README.md .gitattributes logo.png",
			"config.json model-00001-of-00002.safetensors model.safetensors.index.json README.md"},
		"bin without safetensors": {"config.json pytorch_model.bin tokenizer.model",
			"config.json pytorch_model.bin tokenizer.model"},
		"gguf alone": {"a.Q4_K_M.gguf a.Q8_0.gguf README.md", "a.Q4_K_M.gguf a.Q8_0.gguf README.md"},
		"safetensors of an adapter are not the model's": {"pytorch_model.bin adapters/a.safetensors", "pytorch_model.bin"},
		"a path that leads out stays, to be refused":    {"../x.json config.json", "../x.json config.json"},
	} {
		var m hub.Model
		for path := range strings.FieldsSeq(c.has) {
			m.Files = append(m.Files, hub.File{Listed: models.Listed{Path: path}})
		}
		var got []string
		for _, f := range m.Serving().Files {
			got = append(got, f.Path)
		}
		if !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%s: %v", what, got)
		}
	}
}
