package reclaim

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"rollout/shared/artifact"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
	"rollout/shared/snapshot"
)

// withAgent freezes the agent in agents/a/ for the run.
func (d fixture) withAgent(r identity.RunID) func(*record.Manifest) {
	d.t.Helper()
	contents := snapshot.Store{Blobs: d.Ports.Blobs, Docs: d.Docs, Clock: d.Clock}
	keep := func(ctx context.Context, c identity.ContentID) error { return contents.KeepForRun(ctx, c, r) }
	p, err := artifact.Pin(d.t.Context(), d.Ports.Blobs, "agents/a/", keep)
	if err != nil {
		d.t.Fatal(err)
	}
	return func(m *record.Manifest) {
		m.Artifacts = []record.Artifact{{Variant: "a", Key: "agents/a/", Content: p.Content.String()}}
	}
}

// references returns the keys of the documents that say who needs an object.
func (d fixture) references() (keys []string) {
	d.t.Helper()
	for doc, err := range document.All(d.t.Context(), d.Docs, "content/") {
		if err != nil {
			d.t.Fatal(err)
		}
		keys = append(keys, doc.Key)
	}
	return keys
}

// hasArtifact reports whether the artifact of the manifest is there.
func (d fixture) hasArtifact(m record.Manifest) bool {
	d.t.Helper()
	content, _ := identity.ParseContentID(m.Artifacts[0].Content)
	_, err := d.Ports.Blobs.Stat(d.t.Context(), identity.ContentKey(content), "")
	if err != nil && !fault.Is(err, fault.NotFound) {
		d.t.Fatal(err)
	}
	return err == nil
}

// More runs may have one artifact than its document counts. Then it stays for good.
func TestArtifactOfVeryManyRunsIsKept(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	contents := snapshot.Store{Blobs: d.Ports.Blobs, Docs: d.Docs, Clock: d.Clock}
	info := hosttest.Put(t, d.Ports, identity.ContentKey(identity.TextContent("agent")), "agent")
	if info == "" {
		t.Fatal("no version")
	}
	const runs = 2001
	id := func(n int) identity.RunID { return identity.RunID(fmt.Sprintf("01J0000000000000000000%04d", n)) }
	for n := range runs {
		if err := contents.KeepForRun(t.Context(), identity.TextContent("agent"), id(n)); err != nil {
			t.Fatalf("run %d: %v", n, err)
		}
	}
	for n := range runs {
		if err := contents.ReleaseOfRun(t.Context(), identity.TextContent("agent"), id(n)); err != nil {
			t.Fatalf("run %d: %v", n, err)
		}
	}
	if _, err := d.Ports.Blobs.Stat(t.Context(), identity.ContentKey(identity.TextContent("agent")), ""); err != nil {
		t.Error(err)
	}
}

func TestArtifactExpiresWithTheLastRunThatNeedsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const first, second = identity.RunID("01J00000000000000000000001"), identity.RunID("01J00000000000000000000002")
		d := newFixture(t)
		hosttest.Put(t, d.Ports, "agents/a/agent", "#!/bin/sh")
		m := d.old(first, 1, d.withAgent(first))
		<-time.After(keep / 2)
		d.old(second, 1, d.withAgent(second))
		d.index()
		<-time.After(keep / 2)
		if err := d.expire(); err != nil {
			t.Fatal(err)
		}
		if len(d.under(record.EndedPrefix)) != 1 || !d.hasArtifact(m) {
			t.Errorf("after the first run: artifact %t, ended runs %v", d.hasArtifact(m), d.under(record.EndedPrefix))
		}
		<-time.After(keep / 2)
		if err := d.expire(); err != nil {
			t.Fatal(err)
		}
		if len(d.under(record.EndedPrefix)) != 0 || d.hasArtifact(m) || len(d.references()) != 0 {
			t.Errorf("after the last run: artifact %t, ended runs %v, references %v", d.hasArtifact(m),
				d.under(record.EndedPrefix), d.references())
		}
	})
}

// submitDuringDelete is a bucket where a run is submitted with an artifact just before that is deleted.
type submitDuringDelete struct {
	blob.Store
	submit func()
}

func (b *submitDuringDelete) Delete(ctx context.Context, key, version string) error {
	if submit := b.submit; submit != nil && key[:4] == "cas/" {
		b.submit = nil
		submit()
	}
	return b.Store.Delete(ctx, key, version)
}

// A run that is submitted while the same artifact is deleted for another run has it.
func TestArtifactIsKeptForARunSubmittedMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const next = identity.RunID("01J00000000000000000000002")
		d := newFixture(t)
		hosttest.Put(t, d.Ports, "agents/a/agent", "#!/bin/sh")
		m := d.old(id, 1, d.withAgent(id))
		d.index()
		<-time.After(keep)
		submitted := false
		meanwhile := d
		meanwhile.Ports.Blobs = &submitDuringDelete{Store: d.Ports.Blobs, submit: func() {
			submitted = true
			d.withAgent(next)
		}}
		if err := meanwhile.expire(); err != nil {
			t.Fatal(err)
		}
		if !submitted || !d.hasArtifact(m) || len(d.references()) != 1 {
			t.Errorf("submitted %t, artifact %t, references %v", submitted, d.hasArtifact(m), d.references())
		}
	})
}
