package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rollout/localstack/scenarios"
	"rollout/shared/core/run"
)

// onlineServer is an inference server whose answers the test controls. A request with "hold"
// in its body is answered when the test says so.
type onlineServer struct {
	url     string
	held    chan *heldRequest
	mu      sync.Mutex
	bodies  []string // of online requests
	headers []http.Header
	atOnce  int // held requests with "online" in their body
	most    int
}

// heldRequest is a request that waits for the test.
type heldRequest struct {
	answer chan struct{} // closed by the test
	left   chan struct{} // closed when the client has left
}

// The answer of onlineServer: a stream with a comment and two kinds of line ends.
const (
	firstPiece = ": ping\n\n" +
		"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\r\n\r\n"
	lastPiece  = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
	wholeReply = `{"object":"chat.completion","model":"fake","choices":[{"index":0,"message":{"role":"assistant",` +
		`"content":"a"},"text":"a","finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`
)

// patientOnline lets requests wait for a worker on a slow machine.
const patientOnline = "[online]\nmax_wait = \"5m\"\n"

func serveOnline(t *testing.T) *onlineServer {
	t.Helper()
	s := &onlineServer{held: make(chan *heldRequest, 64)}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	s.url = h.URL
	return s
}

// ServeHTTP implements http.Handler.
func (s *onlineServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/v1/models":
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"fake","object":"model"}]}`)
		return
	case r.Method != http.MethodPost:
		return
	}
	b, _ := io.ReadAll(r.Body) // a client that left is noticed below
	body := string(b)
	online := strings.Contains(body, "online")
	if online {
		s.mu.Lock()
		s.bodies, s.headers = append(s.bodies, r.URL.Path+" "+body), append(s.headers, r.Header)
		s.mu.Unlock()
	}
	stream := strings.Contains(body, `"stream":true`)
	if stream {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, firstPiece)
		w.(http.Flusher).Flush()
	}
	if strings.Contains(body, "hold") && !s.hold(r.Context(), online) {
		return
	}
	if stream {
		_, _ = io.WriteString(w, lastPiece)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, wholeReply)
}

// hold keeps a request until the test answers it; false if the client leaves first.
func (s *onlineServer) hold(ctx context.Context, online bool) bool {
	h := &heldRequest{make(chan struct{}), make(chan struct{})}
	if online {
		s.mu.Lock()
		s.atOnce++
		s.most = max(s.most, s.atOnce)
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			s.atOnce--
			s.mu.Unlock()
		}()
	}
	s.held <- h
	select {
	case <-h.answer:
		return true
	case <-ctx.Done():
		close(h.left)
		return false
	}
}

// next waits for a request that waits for the test.
func (s *onlineServer) next(t *testing.T) *heldRequest {
	t.Helper()
	select {
	case h := <-s.held:
		return h
	case <-time.After(patience):
		t.Fatal("no request came to the server")
		return nil
	}
}

// chat is the body of an online request.
func chat(text string, stream bool) string {
	return fmt.Sprintf(`{"model":"fake", "messages":[{"role":"user","content":"online %s"}],"stream":%t}`, text, stream)
}

// ask sends an online request, which may last long.
func (i *testInstallation) ask(ctx context.Context, path, body string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, i.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer of-the-client")
	r.Header.Set("Cookie", "of=the-client")
	return http.DefaultClient.Do(r)
}

// answerTo returns the status, the header and the body of the answer to an online request.
func (i *testInstallation) answerTo(path, body string) (int, http.Header, string) {
	i.t.Helper()
	resp, err := i.ask(i.t.Context(), path, body)
	if err != nil {
		i.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		i.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

// problemOf returns the error of an answer in OpenAI's form.
func problemOf(t *testing.T, body string) (message, kind, code string) {
	t.Helper()
	var e struct {
		Error struct{ Message, Type, Code string }
	}
	if err := json.Unmarshal([]byte(body), &e); err != nil || e.Error.Message == "" {
		t.Errorf("%s is not an error in OpenAI's form: %v", body, err)
	}
	return e.Error.Message, e.Error.Type, e.Error.Code
}

// Online requests get the server's own bytes, at all paths, by the name of the model or of the
// pool. The server gets theirs, and no header of the client.
func TestOnlineRequestsArePassedAsTheyAre(t *testing.T) {
	t.Parallel()
	s := serveOnline(t)
	i := install(t, s.url, 0, patientOnline)
	code, header, body := i.answerTo("/v1/chat/completions", chat("x", true))
	if code != http.StatusOK || body != firstPiece+lastPiece || header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("the stream is %d %v %q", code, header, body)
	}
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"} {
		if code, _, body := i.answerTo(path, chat("y", false)); code != http.StatusOK || body != wholeReply {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	ofPool := strings.Replace(chat("z", false), `"fake"`, `"default"`, 1)
	if code, _, body := i.answerTo("/v1/completions", ofPool); code != http.StatusOK {
		t.Errorf("by the name of the pool: %d %s", code, body)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	want := []string{"/v1/chat/completions " + chat("x", true), "/v1/chat/completions " + chat("y", false),
		"/v1/completions " + chat("y", false), "/v1/embeddings " + chat("y", false), "/v1/responses " + chat("y", false),
		"/v1/completions " + chat("z", false)}
	if strings.Join(s.bodies, "\n") != strings.Join(want, "\n") {
		t.Errorf("the server got\n%s\nwant\n%s", strings.Join(s.bodies, "\n"), strings.Join(want, "\n"))
	}
	for _, h := range s.headers {
		if h.Get("Authorization") != "" || h.Get("Cookie") != "" {
			t.Errorf("the server got the client's headers: %v", h)
		}
	}
}

// What is wrong with a request is said at once, in OpenAI's form, and is not to be repeated.
func TestOnlineRefusesWhatIsWrong(t *testing.T) {
	t.Parallel()
	i := install(t, serveOnline(t).url, 0, "")
	for name, c := range map[string]struct {
		body, says string
		status     int
	}{
		"unknown model": {`{"model":"gpt-9"}`, "there are: fake", http.StatusNotFound},
		"no model":      {`{"messages":[]}`, "there are: fake", http.StatusBadRequest},
		"not JSON":      {`{"model":`, "JSON", http.StatusBadRequest},
		"not an object": {`[1]`, "object", http.StatusBadRequest},
	} {
		code, header, body := i.answerTo("/v1/chat/completions", c.body)
		message, kind, _ := problemOf(t, body)
		if code != c.status || !strings.Contains(message, c.says) || kind != "invalid_request_error" ||
			header.Get("X-Should-Retry") != "false" {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	off := install(t, serveOnline(t).url, 0, "[online]\nshare = 0\n")
	code, _, body := off.answerTo("/v1/chat/completions", chat("x", false))
	if message, _, _ := problemOf(t, body); code != http.StatusForbidden || !strings.Contains(message, "[online]") {
		t.Errorf("with a share of 0: %d %s", code, body)
	}
}

// A worker is killed in the middle of a stream: the client gets an error event, and nothing
// else. A whole answer is asked for again, unless it loses two workers.
func TestOnlineStreamEndsWithAnErrorWhenItsWorkerIsKilled(t *testing.T) {
	t.Parallel()
	s := serveOnline(t)
	i := install(t, s.url, 1, patientOnline)
	resp, err := i.ask(t.Context(), "/v1/chat/completions", chat("hold", true))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	s.next(t)
	start := make([]byte, len(firstPiece))
	if _, err := io.ReadFull(resp.Body, start); err != nil || string(start) != firstPiece {
		t.Fatalf("the stream begins with %q, %v", start, err)
	}
	i.killOnlineWorker()
	rest, err := io.ReadAll(resp.Body)
	event, ok := strings.CutPrefix(string(rest), "data: ")
	if err != nil || !ok || strings.Count(event, "\n") != 2 || !strings.HasSuffix(event, "\n\n") {
		t.Fatalf("the stream ends with %q, %v", rest, err)
	}
	if _, kind, _ := problemOf(t, strings.TrimSpace(event)); kind != "server_error" {
		t.Errorf("the stream ends with %s", event)
	}

	for _, kills := range []int{1, 2} {
		got := make(chan error, 1)
		go func() { got <- i.wantOnlineAnswer(kills) }()
		for range kills {
			s.next(t)
			i.killOnlineWorker()
		}
		if kills == 1 {
			close(s.next(t).answer)
		}
		if err := <-got; err != nil {
			t.Errorf("after the end of %d workers: %v", kills, err)
		}
	}
}

// wantOnlineAnswer asks for a whole answer, which must come unless two workers are killed.
func (i *testInstallation) wantOnlineAnswer(kills int) error {
	resp, err := i.ask(i.t.Context(), "/v1/chat/completions", chat("hold", false))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case kills == 1 && resp.StatusCode == http.StatusOK && string(body) == wholeReply:
	case kills == 2 && resp.StatusCode == http.StatusBadGateway && resp.Header.Get("Retry-After") != "" &&
		strings.Contains(string(body), `"type":"server_error"`):
	default:
		return fmt.Errorf("the answer is %s %s", resp.Status, body)
	}
	return nil
}

// killOnlineWorker kills the worker that has an online request.
func (i *testInstallation) killOnlineWorker() {
	i.t.Helper()
	eventually(i.t, "a worker has an online request", func() bool {
		for _, w := range i.aliveWorkers() {
			if w.Online != nil && w.Online.InFlight > 0 && parent(w.PID) == i.up.cmd.Process.Pid {
				return errors.Is(syscall.Kill(w.PID, syscall.SIGKILL), nil)
			}
		}
		return false
	})
}

// A client that leaves takes its request with it.
func TestOnlineClientThatLeavesCancelsItsRequest(t *testing.T) {
	t.Parallel()
	s := serveOnline(t)
	i := install(t, s.url, 0, patientOnline)
	for _, stream := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			if resp, err := i.ask(ctx, "/v1/chat/completions", chat("hold", stream)); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}()
		h := s.next(t)
		cancel()
		<-h.left
	}
	eventually(t, "the slots are free again", func() bool {
		w := i.aliveWorkers()
		return len(w) == 1 && w[0].Online != nil && w[0].Online.InFlight == 0
	})
}

// More online requests come than their share of the slots: the rest waits, one beyond the
// queue is refused, and a run goes on beside them. They are in no run's totals.
func TestOnlineBurstKeepsToItsShare(t *testing.T) {
	t.Parallel()
	s := serveOnline(t)
	i := install(t, s.url, 0, "[online]\nshare = 0.5\nqueue = 3\nmax_wait = \"5m\"\n"+
		"[engine]\nstream = \"never\"\n"+smallShards)
	first := make(chan *heldRequest, 2)
	answers := make(chan string, 6)
	burst := func(n int) {
		for range n {
			go func() {
				resp, err := i.ask(t.Context(), "/v1/chat/completions", chat("hold", false))
				if err != nil {
					answers <- err.Error()
					return
				}
				defer resp.Body.Close()
				_, _ = io.Copy(io.Discard, resp.Body)
				answers <- resp.Status + " " + resp.Header.Get("Retry-After")
			}()
		}
	}
	burst(2)
	for range 2 {
		first <- s.next(t)
	}
	burst(3)
	eventually(t, "three wait", func() bool {
		w := i.aliveWorkers()
		return len(w) == 1 && w[0].Online.Waiting == 3 && w[0].Online.InFlight == 2 && w[0].Online.Limit == 2
	})
	if code, header, body := i.answerTo("/v1/chat/completions", chat("hold", false)); code != 429 ||
		header.Get("Retry-After") == "" {
		t.Errorf("one beyond the queue gets %d %s", code, body)
	}
	id := i.submit(promptsFile(t, scenarios.SimplePrompts(30)))
	if st := i.awaitEnd(id); st.Phase != run.Completed || st.Tokens.Prompt != 30 {
		t.Errorf("the run beside them is %s with %+v", st.Phase, st.Tokens)
	}
	for range 2 {
		close((<-first).answer)
	}
	for range 3 {
		close(s.next(t).answer)
	}
	for range 5 {
		if a := <-answers; !strings.HasPrefix(a, "200") {
			t.Errorf("an online request gets %s", a)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.most != 2 {
		t.Errorf("%d online requests were at the server at once, want 2", s.most)
	}
}

// A drain takes no new online request, and lets those in flight end.
func TestDrainFinishesOnlineStreams(t *testing.T) {
	t.Parallel()
	s := serveOnline(t)
	i := install(t, s.url, 0, "[online]\nmax_wait = \"100ms\"\n[worker]\ndrain_budget = \"1m\"\n")
	eventually(t, "a worker takes online requests", func() bool {
		w := i.aliveWorkers()
		return len(w) == 1 && w[0].Online != nil
	})
	resp, err := i.ask(t.Context(), "/v1/chat/completions", chat("hold", true))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	h := s.next(t)
	i.up.signal(syscall.SIGTERM)
	eventually(t, "the worker drains", func() bool {
		for _, w := range i.allWorkers() {
			if w.State == "draining" {
				return true
			}
		}
		return false
	})
	code, header, answer := i.answerTo("/v1/chat/completions", chat("new", false))
	if code != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
		t.Errorf("a new request gets %d %s", code, answer)
	}
	close(h.answer)
	body, err := io.ReadAll(bufio.NewReader(resp.Body))
	if err != nil || string(body) != firstPiece+lastPiece {
		t.Errorf("the stream is %q, %v", body, err)
	}
	if code := i.up.exit(); code != 0 {
		t.Errorf("up ends with %d", code)
	}
}

// The built-in model, and the engine without a model, answer online requests too.
func TestOnlineRequestsOfEnginesInTheWorker(t *testing.T) {
	t.Parallel()
	for engine, model := range map[string]string{"tiny": "rollout/tiny", "mock": "mock"} {
		i := install(t, engine, 0, patientOnline)
		for _, stream := range []bool{true, false} {
			body := strings.Replace(chat("x", stream), `"fake"`, fmt.Sprintf(`%q,"max_tokens":3`, model), 1)
			code, _, answer := i.answerTo("/v1/chat/completions", body)
			if code != http.StatusOK || !strings.Contains(answer, `"choices"`) ||
				stream != strings.HasSuffix(answer, "data: [DONE]\n\n") {
				t.Errorf("%s: %d %s", engine, code, answer)
			}
		}
	}
}
