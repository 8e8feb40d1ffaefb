package regressions

import (
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"rollout/gpuworker/engine"
	"rollout/shared/core/run"
)

// blockingEngine lets requests pass one by one, and after open all of them.
type blockingEngine struct {
	begun chan struct{} // one for each request
	let   chan struct{} // closed by open
	once  sync.Once
}

func newBlockingEngine() *blockingEngine {
	return &blockingEngine{begun: make(chan struct{}, 1000), let: make(chan struct{})}
}

func (g *blockingEngine) open() { g.once.Do(func() { close(g.let) }) }

func (g *blockingEngine) answer(ctx context.Context, r engine.Request) (engine.Answer, error) {
	g.begun <- struct{}{}
	select {
	case <-g.let:
		return mocked(ctx, r)
	case <-ctx.Done():
		return engine.Answer{}, ctx.Err()
	}
}

// hideObject takes a file out of the bucket; the returned function puts the same file
// back.
func (p *system) hideObject(key string) (back func()) {
	p.t.Helper()
	at, kept := filepath.Join(p.bucket.Dir(), key), filepath.Join(p.t.TempDir(), "kept")
	must(p.t, os.Rename(at, kept))
	return func() { p.t.Helper(); must(p.t, os.Rename(kept, at)) }
}

// An input that is taken away pauses its run, which says what to do; put back,
// it goes on where it was.
func TestADeletedInputPausesItsRun(t *testing.T) {
	t.Parallel()
	p := onDisk(t)
	p.configure("[shard]\nitems = 2")
	g := newBlockingEngine()
	p.functions()
	p.work(setup{engine: newRecordingEngine(g.answer), inFlight: 2})
	id := p.upload("prompts/x.jsonl", prompts(40))
	<-g.begun
	back := p.hideObject("prompts/x.jsonl")
	g.open()
	p.await("it is paused", func() bool { return p.state(id).Phase == run.Paused })
	if s := p.state(id); !strings.Contains(s.Message, "prompts/x.jsonl") || !strings.Contains(s.Message, "gone") || !strings.Contains(s.Message, "resume") {
		t.Errorf("it says %q", s.Message)
	}
	back()
	must(t, p.user().Resume(t.Context(), id, "it is back"))
	o := p.ended(id)
	o.phase(t, "completed")
	o.own(t, 40, "")
}

// The same before anything is planned.
func TestAnInputDeletedBeforeItsPlanPausesItsRun(t *testing.T) {
	t.Parallel()
	p := onDisk(t)
	stop := p.functions()
	id := p.upload("prompts/x.jsonl", prompts(40))
	p.await("it is a run", func() bool { return len(p.documents("run/")) == 1 })
	stop()
	for _, d := range p.documents("coordinator/") { // as if it had been planned by nobody yet
		must(t, p.ports.Docs.Delete(t.Context(), d.Key, d.Revision))
	}
	for _, d := range p.documents("plan/") {
		must(t, p.ports.Docs.Delete(t.Context(), d.Key, d.Revision))
	}
	back := p.hideObject("prompts/x.jsonl")
	p.functions()
	p.work(setup{})
	p.await("it is paused", func() bool { return p.state(id).Phase == run.Paused })
	back()
	must(t, p.user().Resume(t.Context(), id, "it is back"))
	o := p.ended(id)
	o.phase(t, "completed")
	o.own(t, 40, "")
}

// Other bytes under the name end the run; what was answered is kept, and the
// new file is a run of its own.
func TestAReplacedInputEndsItsRun(t *testing.T) {
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
			o := p.ended(id)
			o.phase(t, "failed")
			if o.Reason != "input_changed" || len(o.out) == 0 || len(o.out)+len(o.errs) != 40 || o.FailedByClass["input_changed"] != len(o.errs) {
				t.Errorf("%+v", o.Summary)
			}
			for _, r := range parsed[answerRow](t, o.out) {
				if !strings.HasPrefix(r.Completion, "MOCK:number") {
					t.Errorf("an answer to other bytes: %q", r.Completion)
				}
			}
			p.await("the new file is a run of its own", func() bool { return len(p.documents("run/")) == 2 })
		})
	}
}

// A packed input is unpacked into a copy first: it may go once the run is
// planned.
func TestAPackedInputMayGoWhileItsRunGoesOn(t *testing.T) {
	t.Parallel()
	p := onDisk(t)
	p.configure("[shard]\nitems = 2")
	g := newBlockingEngine()
	p.functions()
	p.work(setup{engine: newRecordingEngine(g.answer), inFlight: 2})
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(prompts(40))
	must(t, err)
	must(t, w.Close())
	id := p.upload("prompts/x.jsonl.gz", packed.Bytes())
	<-g.begun
	p.await("it is planned", func() bool { return p.state(id).Complete })
	must(t, os.Remove(filepath.Join(p.bucket.Dir(), "prompts", "x.jsonl.gz")))
	g.open()
	o := p.ended(id)
	o.phase(t, "completed")
	o.own(t, 40, "")
}
