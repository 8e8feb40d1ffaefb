package openai_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"rollout/gpuworker/engine/openai"
	"rollout/shared/fault"
	"rollout/shared/observe"
)

// roundTrip is an http.RoundTripper in one function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func over(t *testing.T, f roundTrip) *openai.Client {
	t.Helper()
	c, err := openai.New(openai.Config{BaseURL: "http://h", HTTPClient: &http.Client{Transport: f}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The transport is still sending the body when the answer is in, as that of net/http
// may be.
func TestCallerMayReuseBodyAfterAnswer(t *testing.T) {
	t.Parallel()
	var sending io.Reader
	began := make([]byte, 10)
	c := over(t, func(r *http.Request) (*http.Response, error) {
		sending = r.Body
		if _, err := io.ReadFull(r.Body, began); err != nil {
			return nil, err
		}
		return &http.Response{StatusCode: 413, Request: r, Body: http.NoBody}, nil
	})
	r := hello
	r.Body = bytes.Clone(r.Body)
	if _, err := ask(t, c, r); fault.ClassOf(err) != fault.TooLong {
		t.Errorf("got %v", err)
	}
	clear(r.Body)
	rest, err := io.ReadAll(sending)
	want := string(hello.Body[:len(hello.Body)-1]) + `,"stream":true,"stream_options":{"include_usage":true}}`
	if got := string(began) + string(rest); err != nil || got != want {
		t.Errorf("sent %q, %v, want %q", got, err, want)
	}
}

// Requests without a trace share their header.
func TestTraceparentIsSentForTracedRequestOnly(t *testing.T) {
	t.Parallel()
	var got []string
	c := over(t, func(r *http.Request) (*http.Response, error) {
		got = append(got, r.Header.Get("Traceparent"))
		body := io.NopCloser(strings.NewReader(`{"choices":[{"text":"a"}]}`))
		return &http.Response{StatusCode: 200, Request: r, Body: body}, nil
	})
	tracer := observe.NewTracer(sdk.NewTracerProvider().Tracer("test"))
	traced, span := tracer.Start(t.Context(), time.Time{}, "shard", "01JD2ZQ4T5W0M1X9YB7R3K8CVE")
	for _, ctx := range []context.Context{t.Context(), traced, t.Context()} {
		if _, err := c.Answer(ctx, hello, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	span.End(nil)
	if want := []string{"", observe.Traceparent(traced), ""}; want[1] == "" || !slices.Equal(got, want) {
		t.Errorf("sent %q, want %q", got, want)
	}
}

// endless is a stream that its server never ends.
type endless struct {
	io.Reader
	cancelled <-chan struct{}
}

func (o endless) Read(b []byte) (int, error) {
	if n, _ := o.Reader.Read(b); n > 0 {
		return n, nil
	}
	<-o.cancelled
	return 0, errors.New("canceled")
}

func (endless) Close() error { return nil }

func TestOpenStreamDelaysAnswerOnlyByDrainTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := over(t, func(r *http.Request) (*http.Response, error) {
			body := endless{strings.NewReader(events(`{"choices":[{"text":"a"}]}`)), r.Context().Done()}
			return &http.Response{StatusCode: 200, Request: r,
				Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body}, nil
		})
		start := time.Now()
		a, err := ask(t, c, hello)
		if err != nil || a.Text != "a" || time.Since(start) != 50*time.Millisecond {
			t.Errorf("%+v, %v after %v", a, err, time.Since(start))
		}
	})
}

// The test runs itself in another process: a process reads its environment once.
func TestProxyOfEnvironmentIsUsed(t *testing.T) {
	t.Parallel()
	const child = "ROLLOUT_TEST_BEHIND_A_PROXY"
	if os.Getenv(child) != "" {
		if a, err := ask(t, newClient(t, "http://engine.example/v1", ""), hello); err != nil || a.Text != "by proxy" {
			t.Errorf("%+v, %v", a, err)
		}
		return
	}
	asked := make(chan string, 1)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.String()
		whole(`{"choices":[{"message":{"content":"by proxy"}}]}`)(w, r)
	}))
	defer proxy.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), child+"=1", "HTTP_PROXY="+proxy.URL, "NO_PROXY=", "http_proxy=", "no_proxy=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := <-asked; got != "http://engine.example/v1/chat/completions" {
		t.Errorf("the proxy was asked for %s", got)
	}
}
