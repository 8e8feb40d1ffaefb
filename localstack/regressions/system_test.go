package regressions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/functions/api"
	"rollout/functions/inprocess"
	"rollout/functions/submit"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/document"
	"rollout/shared/embedded/bucket"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/installation"
	"rollout/shared/memory"
	"rollout/shared/queue"
	"rollout/shared/record"
	"rollout/shared/retry"
)

// system is one installation: its stores, and the functions and workers that a
// test starts over them.
type system struct {
	t        *testing.T
	ports    host.Ports
	deploy   config.Deployment
	patience time.Duration  // how long await waits
	pollGap  time.Duration  // between two checks of await without a hint
	bucket   *bucket.Bucket // on disk only
	raw      stores         // in memory only: the stores without retries
	workers  int
	watched  chan blob.Upload // in memory: makes the functions believe that they hear of uploads
}

// stores are the stores of an installation in memory.
type stores struct {
	blobs  *memory.Bucket
	docs   *memory.Documents
	queues *memory.Queues
}

// onDisk opens an installation over the embedded drivers. It starts nothing. Its
// workers do not fence themselves on a busy machine.
func onDisk(t *testing.T) *system {
	t.Helper()
	l, closeLocal, err := installation.OpenLocal(t.Context(), t.TempDir(), installation.LocalOptions{Create: true})
	must(t, err)
	t.Cleanup(func() { must(t, closeLocal()) })
	deploy := deployment()
	deploy.Health.SelfFence = config.Duration(4 * time.Minute)
	deploy.Health.FailureTimeout = config.Duration(5 * time.Minute)
	return &system{t: t, ports: l.Ports, deploy: deploy, patience: 5 * time.Minute, pollGap: 50 * time.Millisecond,
		bucket: l.Bucket}
}

// inMemory opens an installation over the drivers in memory. It starts nothing.
func inMemory(t *testing.T) *system {
	raw := stores{memory.NewBucket(clock.System{}), memory.NewDocuments(), memory.NewQueues(clock.System{})}
	return &system{t: t, ports: connect(raw.blobs, raw.docs, raw.queues), raw: raw, deploy: deployment(),
		patience: 20 * time.Minute, pollGap: time.Second}
}

// connect makes ports of the stores, with the retries of every process.
func connect(b blob.Store, d document.Store, q queue.Queues) host.Ports {
	return host.Ports{Blobs: b, Docs: document.Reliable(d, retry.Policy{}), Queues: queue.Reliable(q, retry.Policy{}),
		Clock: clock.System{}, Log: slog.New(slog.DiscardHandler), Source: "regressions"}
}

func deployment() config.Deployment {
	d := config.DefaultDeployment()
	d.Pools = []config.Pool{{Name: "default", Model: "mock"}}
	return d
}

// simulated runs a test in simulated time over an installation in memory.
func simulated(t *testing.T, test func(t *testing.T, p *system)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, inMemory(t)) })
}

// functions runs all functions until the test ends or stop is called. On disk
// they watch the bucket.
func (p *system) functions() (stop func()) {
	ctx, cancel := context.WithCancel(p.t.Context())
	cfg := inprocess.Config{Deployment: p.deploy, Uploads: p.watched}
	if p.bucket != nil {
		cfg.Uploads = p.bucket.Watch(ctx, record.PromptsPrefix,
			bucket.WatchOptions{Quiet: 100 * time.Millisecond, EmptyRecheck: 500 * time.Millisecond})
	}
	system := inprocess.New(p.ports, cfg)
	return p.background(cancel, func() error { return system.Run(ctx) })
}

// background runs f in a goroutine. stop cancels it and waits for its end.
func (p *system) background(cancel context.CancelFunc, f func() error) (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := f(); err != nil && !errors.Is(err, context.Canceled) && !fault.Is(err, fault.Canceled) {
			p.t.Errorf("the functions ended: %v", err)
		}
	}()
	stop = func() { cancel(); <-done }
	p.t.Cleanup(stop)
	return stop
}

// upload puts the content into the bucket as `rollout submit` does, and returns
// the id of its run. In memory it also sends the event of the object once.
func (p *system) upload(key string, content []byte) identity.RunID {
	p.t.Helper()
	info := p.put(key, content)
	if p.bucket == nil {
		p.announce(info)
	}
	return identity.UploadRun(p.deploy.Bucket, key, info.Version)
}

// put puts the content into the bucket.
func (p *system) put(key string, content []byte) blob.Info {
	p.t.Helper()
	var info blob.Info
	var err error
	if p.bucket != nil {
		src := filepath.Join(p.t.TempDir(), "src")
		must(p.t, os.WriteFile(src, content, 0o600))
		info, err = bucket.PutFile(p.t.Context(), p.bucket.Dir(), src, key, blob.PutOptions{})
	} else {
		info, err = p.ports.Blobs.Put(p.t.Context(), key, bytes.NewReader(content), blob.PutOptions{})
	}
	must(p.t, err)
	return info
}

// announce sends the event that an object was created.
func (p *system) announce(info blob.Info) {
	p.t.Helper()
	must(p.t, p.ports.Send(p.t.Context(), host.TaskQueue, events.ObjectCreated{
		Bucket: p.deploy.Bucket, Key: info.Key, Version: info.Version, Size: info.Size}))
}

// configure writes the config of uploads that have none beside them.
func (p *system) configure(toml string) {
	p.t.Helper()
	p.put("prompts/rollout.toml", []byte("schema_version = 1\n"+toml))
}

// await waits until the condition holds. It checks on each change of a
// coordinator document, and after pollGap, since changes may come unnoticed. It
// fails the test after patience.
func (p *system) await(what string, holds func() bool) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	hints := p.ports.Docs.(document.Watcher).Watch(ctx, "coordinator/")
	limit := time.NewTimer(p.patience)
	defer limit.Stop()
	poll := time.NewTicker(p.pollGap)
	defer poll.Stop()
	for !holds() {
		select {
		case <-hints:
		case <-poll.C:
		case <-limit.C:
			p.t.Fatalf("this did not happen within %s: %s", p.patience, what)
		}
	}
}

// state is the coordinator's state of the run.
func (p *system) state(id identity.RunID) run.State {
	p.t.Helper()
	s := run.New(id)
	_, _, err := host.Load(p.t.Context(), p.ports.Docs, record.CoordinatorKey(id), &s)
	must(p.t, err)
	return s
}

// outcome is what a run left for its user.
type outcome struct {
	record.Summary
	out, errs [][]byte // rows of both files, without line feeds
}

// awaitEnd waits until the run has ended and reads its files.
func (p *system) awaitEnd(id identity.RunID) outcome {
	p.t.Helper()
	p.await("run "+string(id)+" has ended", func() bool {
		var m record.Manifest
		_, found, err := host.Load(p.t.Context(), p.ports.Docs, record.ManifestKey(id), &m)
		must(p.t, err)
		return found && m.Refused != "" || p.state(id).Phase.Ended()
	})
	var o outcome
	p.await("run "+string(id)+" has a summary", func() bool {
		b, ok := p.object(record.OutputKey(id, record.SummaryFile))
		if ok {
			must(p.t, json.Unmarshal(b, &o.Summary))
		}
		return ok
	})
	if o.Reason != "refused" {
		o.out, o.errs = p.lines(o.Outputs), p.lines(o.Errors)
	}
	return o
}

// object reads an object; ok is false if it does not exist.
func (p *system) object(key string) (content []byte, ok bool) {
	p.t.Helper()
	r, _, err := p.ports.Blobs.Get(p.t.Context(), key, blob.GetOptions{})
	if fault.Is(err, fault.NotFound) {
		return nil, false
	}
	must(p.t, err)
	b, err := io.ReadAll(r)
	must(p.t, errors.Join(err, r.Close()))
	return b, true
}

// lines splits an object at line feeds only, as readers of the output do.
func (p *system) lines(key string) [][]byte {
	p.t.Helper()
	b, ok := p.object(key)
	if !ok {
		p.t.Fatalf("%s does not exist", key)
	}
	if len(b) == 0 {
		return nil
	}
	if b[len(b)-1] != '\n' {
		p.t.Errorf("%s does not end in a line feed", key)
	}
	return bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))
}

// user is the API that the user's commands call.
func (p *system) user() *api.Service { return api.New(p.ports, p.deploy, cloud.OneMachine()) }

// deleteDocuments deletes all documents with the prefix. A write that the functions began
// before they were stopped may still come in.
func (p *system) deleteDocuments(prefix string) {
	p.t.Helper()
	for docs := p.documents(prefix); len(docs) > 0; docs = p.documents(prefix) {
		for _, d := range docs {
			if err := p.ports.Docs.Delete(p.t.Context(), d.Key, d.Revision); err != nil && !fault.Is(err, fault.Conflict) {
				p.t.Fatal(err)
			}
		}
	}
}

// documents are all documents with the prefix.
func (p *system) documents(prefix string) []document.Doc {
	p.t.Helper()
	var docs []document.Doc
	for d, err := range document.All(p.t.Context(), p.ports.Docs, prefix) {
		must(p.t, err)
		docs = append(docs, d)
	}
	return docs
}

// must fails the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// prompts is a plain file of n prompts "number i" with the ids "id-i".
func prompts(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "{\"id\":\"id-%d\",\"prompt\":\"number %d\"}\n", i, i)
	}
	return b.Bytes()
}

// submitter is the submit function, for tests that call it directly.
func (p *system) submitter() *submit.Submitter {
	return submit.New(p.ports, submit.Options{Deployment: p.deploy})
}
