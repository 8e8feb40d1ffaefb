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

// system is one installation: its stores, and whatever was started over them.
type system struct {
	t        *testing.T
	ports    host.Ports
	deploy   config.Deployment
	patience time.Duration  // for conditions, before a test gives up
	look     time.Duration  // between looks at conditions, if there are no hints
	bucket   *bucket.Bucket // on disk only
	raw      stores         // in memory only: without retries
	workers  int
}

// stores are an installation's, in memory.
type stores struct {
	blobs  *memory.Bucket
	docs   *memory.Documents
	queues *memory.Queues
}

// onDisk opens an installation over the drivers of a laptop. Nothing runs yet.
func onDisk(t *testing.T) *system {
	t.Helper()
	l, closeLocal, err := installation.OpenLocal(t.Context(), t.TempDir(), installation.LocalOptions{Create: true})
	must(t, err)
	t.Cleanup(func() { must(t, closeLocal()) })
	return &system{t: t, ports: l.Ports, deploy: deployment(), patience: 2 * time.Minute, look: 50 * time.Millisecond, bucket: l.Bucket}
}

// inMemory opens one over the drivers in memory.
func inMemory(t *testing.T) *system {
	raw := stores{memory.NewBucket(clock.System{}), memory.NewDocuments(), memory.NewQueues(clock.System{})}
	return &system{t: t, ports: connect(raw.blobs, raw.docs, raw.queues), raw: raw, deploy: deployment(), patience: 20 * time.Minute, look: time.Second}
}

// connect wires stores to ports, with the retries that every process has.
func connect(b blob.Store, d document.Store, q queue.Queues) host.Ports {
	return host.Ports{Blobs: b, Docs: document.Reliable(d, retry.Policy{}), Queues: queue.Reliable(q, retry.Policy{}),
		Clock: clock.System{}, Log: slog.New(slog.DiscardHandler), Source: "cases"}
}

func deployment() config.Deployment {
	d := config.DefaultDeployment()
	d.Pools = []config.Pool{{Name: "default", Model: "mock"}}
	return d
}

// simulated runs a test in simulated time, over an installation in memory.
func simulated(t *testing.T, test func(t *testing.T, p *system)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, inMemory(t)) })
}

// functions starts all functions, until the test ends or stop is called. On
// disk they watch the bucket.
func (p *system) functions() (stop func()) {
	ctx, cancel := context.WithCancel(p.t.Context())
	cfg := inprocess.Config{Deployment: p.deploy}
	if p.bucket != nil {
		cfg.Uploads = p.bucket.Watch(ctx, record.PromptsPrefix, bucket.WatchOptions{Quiet: 100 * time.Millisecond, EmptyRecheck: 500 * time.Millisecond})
	}
	system := inprocess.New(p.ports, cfg)
	return p.background(cancel, func() error { return system.Run(ctx) })
}

// background runs f until it ends; stop cancels it and waits.
func (p *system) background(cancel context.CancelFunc, f func() error) (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := f(); err != nil && !errors.Is(err, context.Canceled) && !fault.Is(err, fault.Canceled) {
			p.t.Errorf("it ended: %v", err)
		}
	}()
	stop = func() { cancel(); <-done }
	p.t.Cleanup(stop)
	return stop
}

// upload puts the bytes into the bucket, as `rollout submit` does, and returns
// the run that becomes of them. In memory, the bucket's event is sent once.
func (p *system) upload(key string, content []byte) identity.RunID {
	p.t.Helper()
	info := p.put(key, content)
	if p.bucket == nil {
		p.announce(info)
	}
	return identity.UploadRun(p.deploy.Bucket, key, info.Version)
}

func (p *system) put(key string, content []byte) blob.Info {
	p.t.Helper()
	var info blob.Info
	var err error
	if p.bucket != nil {
		src := filepath.Join(p.t.TempDir(), "src")
		must(p.t, os.WriteFile(src, content, 0o600))
		info, err = bucket.PutFile(p.t.Context(), p.bucket.Dir(), src, key)
	} else {
		info, err = p.ports.Blobs.Put(p.t.Context(), key, bytes.NewReader(content), blob.PutOptions{})
	}
	must(p.t, err)
	return info
}

// announce sends the event of an object's creation.
func (p *system) announce(info blob.Info) {
	p.t.Helper()
	must(p.t, p.ports.Send(p.t.Context(), host.TaskQueue, events.ObjectCreated{
		Bucket: p.deploy.Bucket, Key: info.Key, Version: info.Version, Size: info.Size}))
}

// configure puts the config that uploads without one of their own get.
func (p *system) configure(toml string) {
	p.t.Helper()
	p.put("prompts/rollout.toml", []byte("schema_version = 1\n"+toml))
}

// await waits until the condition holds. Stores hint at changes; a slow look
// makes up for hints that are not there.
func (p *system) await(what string, holds func() bool) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	hints := p.ports.Docs.(document.Watcher).Watch(ctx, "coordinator/")
	late := time.NewTimer(p.patience)
	defer late.Stop()
	look := time.NewTicker(p.look)
	defer look.Stop()
	for !holds() {
		select {
		case <-hints:
		case <-look.C:
		case <-late.C:
			p.t.Fatalf("after %s still not: %s", p.patience, what)
		}
	}
}

// state is how far the run is.
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
	out, errs [][]byte // lines, without their line feeds
}

// ended waits for the run's end and reads its files.
func (p *system) ended(id identity.RunID) outcome {
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

// object reads an object, if it is there.
func (p *system) object(key string) ([]byte, bool) {
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

// lines splits an object on 0x0A alone, as readers of the output do.
func (p *system) lines(key string) [][]byte {
	p.t.Helper()
	b, ok := p.object(key)
	if !ok {
		p.t.Fatalf("there is no %s", key)
	}
	if len(b) == 0 {
		return nil
	}
	if b[len(b)-1] != '\n' {
		p.t.Errorf("%s does not end in a line feed", key)
	}
	return bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))
}

// user is what a command of the user talks to.
func (p *system) user() *api.Service { return api.New(p.ports, p.deploy, cloud.OneMachine()) }

// documents are all documents under a prefix.
func (p *system) documents(prefix string) []document.Doc {
	p.t.Helper()
	var docs []document.Doc
	for d, err := range document.All(p.t.Context(), p.ports.Docs, prefix) {
		must(p.t, err)
		docs = append(docs, d)
	}
	return docs
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// prompts is a file of n numbered prompts, each with an id.
func prompts(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "{\"id\":\"id-%d\",\"prompt\":\"number %d\"}\n", i, i)
	}
	return b.Bytes()
}

// submitter is the submit function, for runs of inputs that a test pins.
func (p *system) submitter() *submit.Submitter {
	return submit.New(p.ports, p.deploy, cloud.Capabilities{})
}
