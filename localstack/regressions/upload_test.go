package regressions

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rollout/events"
	"rollout/gpuworker/engine"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
)

func TestC18ObjectsOfRunsAreNotInputs(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		p.functions()
		p.work(setup{})
		o := p.awaitEnd(p.upload("prompts/x.jsonl", prompts(3)))
		o.wantPhase(t, "completed")
		for _, key := range []string{"runs/x.jsonl", "work/x.jsonl", "cas/x.jsonl", "pending/x.jsonl", "x.jsonl",
			"prompts.jsonl", "runs/prompts/x.jsonl"} {
			p.put(key, prompts(2))
		}
		// Every object in the bucket is announced, also those that runs wrote.
		for after := ""; ; {
			page, err := p.ports.Blobs.List(t.Context(), "", after, blob.MaxList)
			must(t, err)
			for _, info := range page {
				p.announce(info)
				after = info.Key
			}
			if len(page) < blob.MaxList {
				break
			}
		}
		p.await("all events are handled", func() bool { return p.depth(host.TaskQueue) == 0 })
		if ms := p.manifests(); len(ms) != 1 {
			t.Errorf("%d runs, want 1: %+v", len(ms), ms)
		}
	})
}

func TestC32AwkwardKeysBecomeDifferentRuns(t *testing.T) {
	t.Parallel()
	p := onDisk(t)
	p.functions()
	p.work(setup{})
	runs := map[identity.RunID]string{}
	for _, key := range []string{
		"my prompts.jsonl", "a+b.jsonl", "a%2Bb.jsonl", "a b.jsonl", "日本 語.jsonl", "a&b=c?.jsonl", "100%.jsonl",
		"%.jsonl",
		"%2e%2e%2fx.jsonl",
		"quote\"'`.jsonl", "back\\slash.jsonl", "e\u0301.jsonl", "\u00e9.jsonl", "$(id).jsonl",
		"-rf.jsonl", "deep/er/x.jsonl", "#x.jsonl", "x.jsonl.jsonl",
	} {
		key = "prompts/" + key
		line := fmt.Appendf(nil, "{\"prompt\":%q}\n{oops\n", "of "+strings.ToValidUTF8(key, ""))
		runs[p.upload(key, line)] = key
	}
	for id, key := range runs {
		o := p.awaitEnd(id)
		o.wantCounts(t, 1, 1)
		if r := parsed[errorRow](t, o.errs); r[0].File != key {
			t.Errorf("the error row of %s names the file %s", key, r[0].File)
		}
		if r := parsed[answerRow](t, o.out); !strings.HasSuffix(r[0].Completion, "of "+key) {
			t.Errorf("%s has the answer %q", key, r[0].Completion)
		}
	}
	if n := len(p.manifests()); n != len(runs) {
		t.Errorf("%d runs for %d keys", n, len(runs))
	}
}

func TestC33RepeatedEventIsOneRun(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		e := newRecordingEngine(nil)
		p.functions()
		p.functions() // a second process
		p.work(setup{engine: e})
		info := p.put("prompts/x.jsonl", prompts(10))
		event := events.ObjectCreated{Bucket: "local", Key: info.Key, Version: info.Version, Size: info.Size}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { must(t, p.submitter().Uploaded(t.Context(), event)) })
			p.announce(info)
		}
		all.Wait()
		o := p.awaitEnd(identity.UploadRun("local", info.Key, info.Version))
		p.announce(info)
		p.await("all events are handled", func() bool { return p.depth(host.TaskQueue) == 0 })
		o.wantPhase(t, "completed")
		o.wantItems(t, 10, "")
		if len(p.manifests()) != 1 || len(e.requests()) != 10 {
			t.Errorf("%d runs, %d requests", len(p.manifests()), len(e.requests()))
		}
	})
}

// outage is a bucket whose objects cannot be read for a while.
type outage struct {
	blob.Store
	kind fault.Kind
	over atomic.Bool
}

func (o *outage) Get(ctx context.Context, key string, g blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	if !o.over.Load() {
		return nil, blob.Info{}, fault.New(o.kind, "the bucket has an outage")
	}
	return o.Store.Get(ctx, key, g)
}

// The event of an upload fails until it is a dead letter. A scan finds the upload later.
func TestC33UploadWhoseEventIsADeadLetterBecomesARun(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]fault.Kind{"its handler failed too often": fault.Unavailable,
		"its handler failed for a reason that ends": fault.Internal} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulated(t, func(t *testing.T, p *system) {
				bucket := &outage{Store: p.ports.Blobs, kind: kind}
				p.ports.Blobs = bucket
				p.watched = make(chan blob.Upload)
				p.functions()
				p.work(setup{})
				info := p.put("prompts/x.jsonl", prompts(3))
				p.announce(info)
				p.put("prompts/y.jsonl", prompts(3)) // its event never comes
				p.await("the event is a dead letter", func() bool { return p.depth(host.TaskQueue+"-dead") == 1 })
				bucket.over.Store(true)
				lost := time.Now()
				p.patience = 2 * time.Hour
				o := p.awaitEnd(identity.UploadRun(p.deploy.Bucket, info.Key, info.Version))
				o.wantPhase(t, "completed")
				o.wantItems(t, 3, "")
				if late := time.Since(lost); late > 80*time.Minute {
					t.Errorf("it became a run %v later", late)
				}
				<-time.After(time.Hour)
				if n := len(p.manifests()); n != 2 || p.depth(host.TaskQueue) > 0 {
					t.Errorf("%d runs for two uploads", n)
				}
			})
		})
	}
}

func TestC33DeletedUploadIsNotARun(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		p.functions()
		deleted := p.put("prompts/x.jsonl", prompts(2))
		must(t, p.ports.Blobs.Delete(t.Context(), deleted.Key, ""))
		old := p.put("prompts/y.jsonl", prompts(2))
		p.put("prompts/y.jsonl", prompts(3))
		p.announce(deleted) // the deletion came before the event
		p.announce(old)
		p.announce(blob.Info{Key: "prompts/never.jsonl", Version: "7", Size: 10})
		p.await("all events are handled", func() bool { return p.depth(host.TaskQueue) == 0 })
		if ms := p.manifests(); len(ms) != 0 {
			t.Errorf("%d runs of deleted objects", len(ms))
		}
		if n := p.depth(host.TaskQueue + "-dead"); n > 0 {
			t.Errorf("%d dead letters", n)
		}
	})
}

func TestC33OverwrittenInputIsTwoRuns(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		p.configure("[shard]\nitems = 2")
		release, begun := make(chan struct{}), make(chan struct{}, 100)
		e := newRecordingEngine(func(ctx context.Context, r engine.Request) (engine.Answer, error) {
			begun <- struct{}{}
			<-release
			return mocked(ctx, r)
		})
		p.functions()
		p.work(setup{engine: e, inFlight: 2})
		first := p.upload("prompts/x.jsonl", prompts(20))
		<-begun
		<-begun
		second := p.upload("prompts/x.jsonl", bytes.ReplaceAll(prompts(6), []byte("number"), []byte("another")))
		close(release)
		o := p.awaitEnd(first)
		o.wantPhase(t, "failed")
		// Loaded items are answered with the old bytes; the old run never answers
		// the new bytes. The other items have lost their ids with the old bytes.
		if o.Reason != "input_changed" || len(o.out)+len(o.errs) != 20 || len(o.out) < 2 ||
			o.FailedByClass["input_changed"] != len(o.errs) {
			t.Errorf("%+v", o.Summary)
		}
		for i, r := range parsed[answerRow](t, o.out) {
			if r.Completion != fmt.Sprintf("MOCK:number %d", i) {
				t.Errorf("row %d of the old run is %q", i, r.Completion)
			}
		}
		for i, r := range parsed[errorRow](t, o.errs) {
			if r.Item != uint64(len(o.out)+i) || r.Error == "" {
				t.Errorf("%+v", r)
			}
		}
		n := p.awaitEnd(second)
		n.wantPhase(t, "completed")
		n.wantCounts(t, 6, 0)
		if r := parsed[answerRow](t, n.out); r[5].Completion != "MOCK:another 5" {
			t.Errorf("%+v", r[5])
		}
	})
}

func TestC34EmptyFileWrittenLaterIsOneRun(t *testing.T) {
	t.Parallel()
	p := onDisk(t)
	p.functions()
	p.work(setup{})
	path := filepath.Join(p.bucket.Dir(), "prompts", "x.jsonl")
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, nil, 0o600))
	p.sleepRealTime(50 * time.Millisecond)
	content := prompts(40)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	for part := range slices.Chunk(content, len(content)/4+1) { // in several writes
		_, err := f.Write(part)
		must(t, err)
		p.sleepRealTime(20 * time.Millisecond)
	}
	must(t, f.Close())
	p.await("the run exists", func() bool { return len(p.manifests()) > 0 })
	m := p.manifests()[0]
	o := p.awaitEnd(m.Run)
	o.wantPhase(t, "completed")
	o.wantItems(t, 40, "")
	if ms := p.manifests(); len(ms) != 1 {
		t.Errorf("%d runs, want 1", len(ms))
	}
}

// sleepRealTime waits in real time. The time between the writes is the case.
func (p *system) sleepRealTime(d time.Duration) {
	p.t.Helper()
	select {
	case <-time.After(d):
	case <-p.t.Context().Done():
	}
}
