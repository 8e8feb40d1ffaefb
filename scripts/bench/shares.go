package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"rollout/functions/api"
	inference "rollout/localstack/fakellm"
	"rollout/shared/cloud"
	"rollout/shared/core/run"
)

// Settings of the measure of fair shares.
const (
	shareLatency  = 50 * time.Millisecond
	shareInFlight = 32 // of each worker
	shareWorkers  = 2
	shareSmall    = 2000
	shareLarge    = 200_000
	shareTime     = time.Minute // for which the requests of runs by weight are counted
)

// shares measures how runs share a pool: how long a small run takes alone, and beside a
// large one that was submitted before, with the same and with a high priority; and how near
// the requests of five runs are to their weights.
func shares(ctx context.Context, l *runner) error {
	server, err := newCountingServer()
	if err != nil {
		return err
	}
	defer server.Close()
	in, err := l.newFolder(0, func(path string) error { return os.WriteFile(path, nil, 0o644) })
	if err != nil {
		return err
	}
	config := fmt.Sprintf("schema_version = 1\n[worker]\nin_flight = %d\n", shareInFlight)
	if err := os.WriteFile(filepath.Join(in.dir, "rollout.toml"), []byte(config), 0o644); err != nil {
		return err
	}
	if err := os.Remove(in.hidden); err != nil {
		return err
	}
	up, err := l.up(ctx, in, "--engine", server.URL+"/v1", "--workers", fmt.Sprint(shareWorkers))
	if err != nil {
		return err
	}
	defer up.kill()
	p := &sharedPool{upProcess: up, in: in, server: server,
		service: api.New(up.view.Ports, up.view.Deployment, cloud.OneMachine())}
	if err := p.smallBesideLarge(ctx, l); err != nil {
		return err
	}
	if err := p.byWeight(ctx, l); err != nil {
		return err
	}
	if err := up.stop(); err != nil {
		return err
	}
	return in.remove()
}

// sharedPool is an installation whose runs share its workers.
type sharedPool struct {
	*upProcess
	in      *runFolder
	server  *countingServer
	service *api.Service
}

// smallBesideLarge measures the time of a small run alone, and beside a large one.
func (p *sharedPool) smallBesideLarge(ctx context.Context, l *runner) error {
	if err := p.submit("warm-up", shareSmall, `"normal"`); err != nil {
		return err
	}
	if err := p.await(ctx, "warm-up"); err != nil {
		return err
	}
	alone, err := p.timeOf(ctx, "alone", `"normal"`)
	if err != nil {
		return err
	}
	if err := p.submit("large", shareLarge, `"normal"`); err != nil {
		return err
	}
	if err := p.awaitRequests(ctx, "large", 5*shareSmall); err != nil {
		return err
	}
	l.report.add("Shares/small", "s-alone", alone.Seconds())
	for _, c := range []struct {
		priority string
		times    float64 // of the time alone, which it may take, and 5 s
	}{{"normal", 2}, {"high", 1.3}} {
		took, err := p.timeOf(ctx, c.priority, `"`+c.priority+`"`)
		if err != nil {
			return err
		}
		l.report.add("Shares/"+c.priority, "s-beside-large", took.Seconds())
		l.report.add("Shares/"+c.priority, fmt.Sprintf("s-over-%.2g×alone", c.times), took.Seconds()-c.times*alone.Seconds())
	}
	return p.stopRuns(ctx, "large")
}

// timeOf returns the time from the submission of a small run to its end.
func (p *sharedPool) timeOf(ctx context.Context, name, priority string) (time.Duration, error) {
	began := time.Now()
	if err := p.submit(name, shareSmall, priority); err != nil {
		return 0, err
	}
	err := p.await(ctx, name)
	return time.Since(began), err
}

// byWeight measures by how much the requests of five runs differ from their shares.
func (p *sharedPool) byWeight(ctx context.Context, l *runner) error {
	weights := []int{1, 1, 2, 4, 8}
	var names []string
	for i, w := range weights {
		name := fmt.Sprintf("weight-%d-%d", w, i)
		names = append(names, name)
		if err := p.submit(name, shareLarge/2, fmt.Sprint(w)); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := p.awaitRequests(ctx, name, 100); err != nil {
			return err
		}
	}
	before, began := p.server.counts(), time.Now()
	select {
	case <-time.After(shareTime):
	case <-ctx.Done():
		return ctx.Err()
	}
	after, all := p.server.counts(), 0
	for _, name := range names {
		all += after[name] - before[name]
	}
	took, worst := time.Since(began), 0.0
	for i, name := range names {
		share := float64(after[name]-before[name]) / float64(all) * 16 / float64(weights[i])
		l.say("%s: %d of %d requests, %.3f of its share", name, after[name]-before[name], all, share)
		worst = max(worst, 100*max(share-1, 1-share))
	}
	l.report.add("Shares/weights", "requests/s", float64(all)/took.Seconds())
	l.report.add("Shares/weights", "%-off-at-most", worst)
	return p.stopRuns(ctx, names...)
}

// submit puts a file of n prompts that begin with the run's name into the bucket.
func (p *sharedPool) submit(name string, n int, priority string) error {
	prompts := filepath.Join(p.in.dir, "bucket", "prompts")
	config := fmt.Sprintf("schema_version = 1\n[run]\npriority = %s\n", priority)
	if err := os.WriteFile(filepath.Join(prompts, name+".toml"), []byte(config), 0o644); err != nil {
		return err
	}
	var b strings.Builder
	for k := range n {
		fmt.Fprintf(&b, "{\"prompt\":\"%s %d\"}\n", name, k)
	}
	hidden := filepath.Join(prompts, "."+name)
	if err := os.WriteFile(hidden, []byte(b.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(hidden, filepath.Join(prompts, name+".jsonl")) // counts at once
}

// find returns the status of the run of a file.
func (p *sharedPool) find(ctx context.Context, name string) (runStatus, bool, error) {
	all, err := p.service.List(ctx)
	for _, s := range all {
		if len(s.Inputs) == 1 && s.Inputs[0] == "prompts/"+name+".jsonl" {
			return s, true, err
		}
	}
	return runStatus{}, false, err
}

// await waits until the run of the file has ended. All its items must have an answer.
func (p *sharedPool) await(ctx context.Context, name string) error {
	return wait(ctx, func() (bool, error) {
		s, found, err := p.find(ctx, name)
		if !found || err != nil || !s.Phase.Ended() {
			return false, err
		}
		if s.Phase != run.Completed {
			return false, fmt.Errorf("the run %s is %s: %s", name, s.Phase, s.Message)
		}
		return true, nil
	})
}

// awaitRequests waits until the server has seen n requests of the run.
func (p *sharedPool) awaitRequests(ctx context.Context, name string, n int) error {
	return wait(ctx, func() (bool, error) { return p.server.counts()[name] >= n, nil })
}

// stopRuns stops the runs of the files and waits until they have ended.
func (p *sharedPool) stopRuns(ctx context.Context, names ...string) error {
	for _, name := range names {
		s, found, err := p.find(ctx, name)
		if err != nil || !found {
			return errors.Join(err, fmt.Errorf("the run %s is not found", name))
		}
		if err := p.service.Stop(ctx, s.Run, "measured"); err != nil {
			return err
		}
	}
	return wait(ctx, func() (bool, error) {
		for _, name := range names {
			if s, _, err := p.find(ctx, name); err != nil || !s.Phase.Ended() {
				return false, err
			}
		}
		return true, nil
	})
}

// countingServer is an inference server that counts the requests of each run, which the
// first word of a prompt names.
type countingServer struct {
	*httptest.Server
	mu   sync.Mutex
	seen map[string]int
}

func newCountingServer() (*countingServer, error) {
	answers, err := inference.New(inference.Config{Latency: shareLatency})
	if err != nil {
		return nil, err
	}
	s := &countingServer{seen: map[string]int{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client went away
		}
		if _, prompt, ok := bytes.Cut(body, []byte(`"prompt":"`)); ok {
			name, _, _ := strings.Cut(string(prompt), " ")
			s.mu.Lock()
			s.seen[name]++
			s.mu.Unlock()
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		answers.ServeHTTP(w, r)
	}))
	return s, nil
}

// counts returns how many requests each run has had so far.
func (s *countingServer) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for name, n := range s.seen {
		out[name] = n
	}
	return out
}
