package regressions

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"rollout/gpuworker/engine"
	"rollout/shared/core/run"
)

// blockingEngine holds all requests until open is called.
type blockingEngine struct {
	begun  chan struct{} // receives one value for each request
	opened chan struct{} // closed by open
	once   sync.Once
}

func newBlockingEngine() *blockingEngine {
	return &blockingEngine{begun: make(chan struct{}, 1000), opened: make(chan struct{})}
}

func (g *blockingEngine) open() { g.once.Do(func() { close(g.opened) }) }

func (g *blockingEngine) answer(ctx context.Context, r engine.Request) (engine.Answer, error) {
	g.begun <- struct{}{}
	select {
	case <-g.opened:
		return mocked(ctx, r)
	case <-ctx.Done():
		return engine.Answer{}, ctx.Err()
	}
}

// hideObject moves an object's file out of the bucket. restore moves it back.
func (p *system) hideObject(key string) (restore func()) {
	p.t.Helper()
	path, hidden := filepath.Join(p.bucket.Dir(), key), filepath.Join(p.t.TempDir(), "hidden")
	must(p.t, os.Rename(path, hidden))
	return func() { p.t.Helper(); must(p.t, os.Rename(hidden, path)) }
}

// The message names the remedy. Once the input is restored and the run resumed,
// the run goes on.
func TestDeletedInputPausesItsRun(t *testing.T) {
	t.Parallel()
	p := onDisk(t)
	p.configure("[shard]\nitems = 2")
	g := newBlockingEngine()
	p.functions()
	p.work(setup{engine: newRecordingEngine(g.answer), inFlight: 2})
	id := p.upload("prompts/x.jsonl", prompts(40))
	<-g.begun
	restore := p.hideObject("prompts/x.jsonl")
	g.open()
	p.await("the run is paused", func() bool { return p.state(id).Phase == run.Paused })
	if s := p.state(id); !strings.Contains(s.Message, "prompts/x.jsonl") || !strings.Contains(s.Message, "gone") ||
		!strings.Contains(s.Message, "resume") {
		t.Errorf("the message is %q, want the input and the remedy", s.Message)
	}
	restore()
	must(t, p.user().Resume(t.Context(), id, "restored"))
	o := p.awaitEnd(id)
	o.wantPhase(t, "completed")
	o.wantItems(t, 40, "")
}

func TestInputDeletedBeforePlanningPausesItsRun(t *testing.T) {
	t.Parallel()
	p := onDisk(t)
	stop := p.functions()
	id := p.upload("prompts/x.jsonl", prompts(40))
	p.await("the run exists", func() bool { return len(p.documents("run/")) == 1 })
	stop()
	p.deleteDocuments("coordinator/") // as if the run had not been planned yet
	p.deleteDocuments("plan/")
	restore := p.hideObject("prompts/x.jsonl")
	p.functions()
	p.work(setup{})
	p.await("the run is paused", func() bool { return p.state(id).Phase == run.Paused })
	restore()
	must(t, p.user().Resume(t.Context(), id, "restored"))
	o := p.awaitEnd(id)
	o.wantPhase(t, "completed")
	o.wantItems(t, 40, "")
}

// Answers are kept, and the new file becomes another run.
func TestReplacedInputFailsItsRun(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(t *testing.T, path string){
		"by a rename": func(t *testing.T, path string) {
			must(t, os.WriteFile(path+".new", prompts(7), 0o600))
			must(t, os.Rename(path+".new", path))
		},
		"in place": func(t *testing.T, path string) { must(t, os.WriteFile(path, prompts(7), 0o600)) },
		"in place, the same size": func(t *testing.T, path string) {
			b, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(path, bytes.ReplaceAll(b, []byte("number"), []byte("NUMBER")), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := onDisk(t)
			p.configure("[shard]\nitems = 2")
			g := newBlockingEngine()
			p.functions()
			p.work(setup{engine: newRecordingEngine(g.answer), inFlight: 2})
			id := p.upload("prompts/x.jsonl", prompts(40))
			<-g.begun
			replace(t, filepath.Join(p.bucket.Dir(), "prompts", "x.jsonl"))
			g.open()
			o := p.awaitEnd(id)
			o.wantPhase(t, "failed")
			if o.Reason != "input_changed" || len(o.out) == 0 || len(o.out)+len(o.errs) != 40 ||
				o.FailedByClass["input_changed"] != len(o.errs) {
				t.Errorf("%+v", o.Summary)
			}
			for _, r := range parsed[answerRow](t, o.out) {
				if !strings.HasPrefix(r.Completion, "MOCK:number") {
					t.Errorf("an answer to the new bytes: %q", r.Completion)
				}
			}
			p.await("the new file is another run", func() bool { return len(p.documents("run/")) == 2 })
		})
	}
}

// A compressed input is unpacked into a copy, so it may be deleted once the run is
// planned.
func TestCompressedInputMayBeDeletedAfterPlanning(t *testing.T) {
	t.Parallel()
	p := onDisk(t)
	p.configure("[shard]\nitems = 2")
	g := newBlockingEngine()
	p.functions()
	p.work(setup{engine: newRecordingEngine(g.answer), inFlight: 2})
	id := p.upload("prompts/x.jsonl.gz", gzipped(t, prompts(40)))
	<-g.begun
	p.await("the run is planned", func() bool { return p.state(id).Complete })
	must(t, os.Remove(filepath.Join(p.bucket.Dir(), "prompts", "x.jsonl.gz")))
	g.open()
	o := p.awaitEnd(id)
	o.wantPhase(t, "completed")
	o.wantItems(t, 40, "")
}
