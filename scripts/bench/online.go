package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"rollout/functions/api"
	inference "rollout/localstack/fakellm"
	"rollout/shared/cloud"
)

// Settings of the measure of online requests: a server that answers a request in 20 ms and 50
// tokens of 10 ms, up to 64 at once without slowing them down.
const (
	onlineInFlight = 64
	onlineTokens   = 50
	onlineRequests = 40 // of each p50
	onlineBatch    = 100_000
)

// online measures requests of clients that wait for the answer: how long they take at an idle
// server and beside a run that keeps the server full, and what the run loses to them.
func online(ctx context.Context, l *runner) error {
	server, err := newLoadedServer()
	if err != nil {
		return err
	}
	defer server.Close()
	in, err := l.newFolder(0, func(path string) error { return os.WriteFile(path, nil, 0o644) })
	if err != nil {
		return err
	}
	config := fmt.Sprintf("schema_version = 1\n[worker]\nin_flight = %d\n", onlineInFlight)
	if err := os.WriteFile(filepath.Join(in.dir, "rollout.toml"), []byte(config), 0o644); err != nil {
		return err
	}
	if err := os.Remove(in.hidden); err != nil {
		return err
	}
	at, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	up, err := l.up(ctx, in, "--engine", server.URL+"/v1", "--listen", at)
	if err != nil {
		return err
	}
	defer up.kill()
	if err := wait(ctx, func() (bool, error) { _, err := askOnline(ctx, at); return err == nil, nil }); err != nil {
		return err
	}
	idle, err := medianOnline(ctx, at)
	if err != nil {
		return err
	}
	p := &sharedPool{upProcess: up, in: in, service: api.New(up.view.Ports, up.view.Deployment, cloud.OneMachine())}
	if err := p.submit("large", onlineBatch, `"normal"`); err != nil {
		return err
	}
	if err := wait(ctx, func() (bool, error) { return server.ended.Load() > 3*onlineInFlight, nil }); err != nil {
		return err
	}
	alone, err := server.rate(ctx, func() error { return pauseFor(ctx, 15*time.Second) })
	if err != nil {
		return err
	}
	batch := onlineInFlight / alone // of one batch request, by Little's law
	var loaded time.Duration
	beside, err := server.rate(ctx, func() error { loaded, err = medianOnline(ctx, at); return err })
	if err != nil {
		return err
	}
	l.report.add("Online/idle", "s-p50", idle.Seconds())
	l.report.add("Online/full", "s-p50", loaded.Seconds())
	l.report.add("Online/full", "×idle-and-a-batch-request", loaded.Seconds()/(idle.Seconds()+batch))
	l.report.add("Online/full", "%-of-requests-lost", 100*(1-beside/alone))
	if err := p.stopRuns(ctx, "large"); err != nil {
		return err
	}
	if err := up.stop(); err != nil {
		return err
	}
	return in.remove()
}

// medianOnline returns the median time of online requests, of which one is open at a time.
func medianOnline(ctx context.Context, at string) (time.Duration, error) {
	var took []time.Duration
	for range onlineRequests {
		d, err := askOnline(ctx, at)
		if err != nil {
			return 0, err
		}
		took = append(took, d)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// askOnline sends an online request and returns how long its answer took.
func askOnline(ctx context.Context, at string) (time.Duration, error) {
	const body = `{"model":"fake","messages":[{"role":"user","content":"online"}],"stream":true}`
	url := "http://" + at + "/v1/chat/completions"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	began := time.Now()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || !strings.HasSuffix(string(b), "[DONE]\n\n")) {
		err = fmt.Errorf("an online request got %s: %s", resp.Status, tail(b))
	}
	return time.Since(began), err
}

// loadedServer is an inference server with continuous batching that counts answers.
type loadedServer struct {
	*httptest.Server
	ended atomic.Int64
}

func newLoadedServer() (*loadedServer, error) {
	h, err := inference.New(inference.Config{Latency: 20 * time.Millisecond, TokenLatency: 10 * time.Millisecond,
		Tokens: onlineTokens, Saturation: onlineInFlight})
	if err != nil {
		return nil, err
	}
	s := &loadedServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		if r.Method == http.MethodPost {
			s.ended.Add(1)
		}
	}))
	return s, nil
}

// rate returns the answers per second while f runs.
func (s *loadedServer) rate(ctx context.Context, f func() error) (float64, error) {
	before, began := s.ended.Load(), time.Now()
	err := errors.Join(f(), ctx.Err())
	return float64(s.ended.Load()-before) / time.Since(began).Seconds(), err
}

// freeAddress returns a loopback address at which no process listens.
func freeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
