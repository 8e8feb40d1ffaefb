package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rollout/functions/status"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
	"rollout/shared/retry"
)

const keep = 24 * time.Hour

// old saves a run that has ended just now, with documents of every kind and its files, and the
// entries of both indexes.
func (d fixture) old(r identity.RunID, shards int, edit ...func(*record.Manifest)) record.Manifest {
	d.t.Helper()
	m := inputtest.Manifest(1)
	m.Run, m.Name, m.CreatedAt = r, "nightly", time.Now().UTC()
	m.Inputs = []record.Input{{Key: "prompts/nightly.jsonl", Version: "1", Size: 7}}
	for _, f := range edit {
		f(&m)
	}
	for _, e := range record.NamedEntries(m, true) {
		d.save(e.Key, e.NamedRun)
	}
	d.save(record.ManifestKey(r), m)
	s := run.New(r)
	s.Phase, s.Shards, s.EndedAt = run.Completed, shards, time.Now().UTC()
	d.save(record.CoordinatorKey(r), s)
	d.save(record.ControlKey(r), record.Control{Schema: 1})
	d.save(record.PlanKey(r), record.Plan{Schema: 1})
	d.save(record.PlanLeaseKey(r), record.PlanLease{Schema: 1})
	d.save(record.NotifyKey(record.RunSubject(r)), record.Notifications{Schema: 1})
	for n := range shards {
		d.save(identity.ShardKey(r, n), shard.Doc{Schema: 1, Run: r, Shard: n, State: shard.Done})
	}
	hosttest.Put(d.t, d.Ports, record.ShardTableKey(r, 0), "cuts")
	hosttest.Put(d.t, d.Ports, record.OutputKey(r, record.SummaryFile), "{}")
	p, err := d.reader.Progress(d.t.Context(), r, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	if m.Refused != "" || s.Phase.Ended() {
		key, e := status.NewEnded(p)
		d.save(key, e)
	}
	return m
}

// index saves an index of ended runs with every run.
func (d fixture) index() {
	d.t.Helper()
	x := hosttest.Load[record.RunIndex](d.t, d.Ports, record.RunIndexKey)
	x.Schema, x.Built, x.Linked, x.Ended = 1, true, true, len(d.under(record.EndedPrefix))
	d.save(record.RunIndexKey, x)
}

// expire calls Expire every minute until nothing changes for some time, and returns an error
// of one of the calls.
func (d fixture) expire() (failed error) {
	e := NewExpirer(d.Ports, ExpireOptions{Keep: keep, WorkFiles: true})
	for range 10 {
		failed = errors.Join(failed, e.ExpireAll(d.t.Context()))
		<-time.After(time.Minute)
	}
	return failed
}

// of returns the keys of all documents and objects that name the run.
func (d fixture) of(r identity.RunID) (keys []string) {
	d.t.Helper()
	for doc, err := range document.All(d.t.Context(), d.Docs, "") {
		if err != nil {
			d.t.Fatal(err)
		}
		if strings.Contains(doc.Key, string(r)) || strings.HasPrefix(doc.Key, record.ParentPrefix(r)) {
			keys = append(keys, doc.Key)
		}
	}
	infos, err := d.Ports.Blobs.List(d.t.Context(), "", "", blob.MaxList)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, info := range infos {
		if strings.Contains(info.Key, string(r)) {
			keys = append(keys, info.Key)
		}
	}
	return keys
}

// leftOf are the keys of what stays of a run that has expired.
func leftOf(m record.Manifest) []string {
	byInput := record.InputPrefix(m.Inputs[0].Key)
	return []string{record.FoundKey(m.Run), record.NamedKey(byInput, m.CreatedAt, m.Run),
		record.OutputKey(m.Run, record.SummaryFile)}
}

func TestRunExpiresWithAllItsDocuments(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		m := d.old(id, 3)
		d.index()
		before := d.of(id)
		<-time.After(keep - time.Minute)
		if err := d.expire(); err != nil {
			t.Error(err)
		}
		<-time.After(keep)
		if err := d.expire(); err != nil {
			t.Error(err)
		}
		if got, want := d.of(id), leftOf(m); !slices.Equal(got, want) {
			t.Errorf("of %v\nis left %v\nwant %v", before, got, want)
		}
		x := hosttest.Load[record.RunIndex](t, d.Ports, record.RunIndexKey)
		if x.Ended != 0 || x.Expired != 1 || len(x.Expiring) != 0 || x.ExpireAfter != "" {
			t.Errorf("index: %+v", x)
		}
		_, err := host.LoadManifest(t.Context(), d.Docs, id)
		var expired *host.ExpiredError
		if !errors.As(err, &expired) || !errors.Is(err, host.ErrNoRun) || expired.Name != "nightly" ||
			expired.Phase != string(run.Completed) || !strings.Contains(err.Error(), "runs/"+string(id)+"/") {
			t.Errorf("the run is %v", err)
		}
		_, err = host.LoadUpload(t.Context(), d.Docs, id)
		if !host.IsExpired(err) {
			t.Errorf("the upload is %v", err)
		}
	})
}

func TestYoungRunDoesNotExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.old(id, 1)
		d.index()
		before := d.of(id)
		<-time.After(keep - time.Hour)
		if err := d.expire(); err != nil {
			t.Error(err)
		}
		if got := d.of(id); !slices.Equal(got, before) {
			t.Errorf("%v are left of %v", got, before)
		}
	})
}

// asChild makes a manifest that of a child of the run.
func asChild(parent identity.RunID) func(*record.Manifest) {
	return func(m *record.Manifest) { m.Parent = &record.Parent{Run: parent} }
}

// A run is kept for each of its children, and for a run that may just be made a child; and
// after that it expires, too.
func TestRunIsKeptThatAnotherOneNeeds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		given func(d fixture)
		kept  bool
	}{
		"a child that ended later": {func(d fixture) { d.old(second, 1, asChild(id)) }, true},
		"an open child": {func(d fixture) {
			d.running(second, time.Now())
			m := hosttest.Load[record.Manifest](d.t, d.Ports, record.ManifestKey(second))
			m.Parent = &record.Parent{Run: id}
			d.save(record.ManifestKey(second), m)
			for _, e := range record.NamedEntries(m, true) {
				d.save(e.Key, e.NamedRun)
			}
		}, true},
		"a child that is being submitted": {func(d fixture) {
			key := record.NamedKey(record.ParentPrefix(id), time.Now(), second)
			d.save(key, record.NamedRun{Schema: 1, Run: second, Created: time.Now()})
		}, true},
		"a child that was never made": {func(d fixture) {
			at := time.Now().Add(-2 * time.Hour)
			d.save(record.NamedKey(record.ParentPrefix(id), at, second), record.NamedRun{Schema: 1, Run: second, Created: at})
		}, false},
		"a refused child": {func(d fixture) {
			d.old(second, 0, asChild(id), func(m *record.Manifest) { m.Refused = "why" })
		}, false},
		"no child": {func(fixture) {}, false},
		"its events are not delivered yet": {func(d fixture) {
			d.save(record.OutboxKey(record.RunSubject(id)), record.OutboxEntry{Schema: 1, At: time.Now()})
		}, true},
		"its events were never delivered": {func(d fixture) {
			at := time.Now().Add(-26 * time.Hour)
			d.save(record.OutboxKey(record.RunSubject(id)), record.OutboxEntry{Schema: 1, At: at})
		}, false},
		"it is in the index of open runs":         {func(d fixture) { d.addOpen(id) }, true},
		"its manifest can't be read":              {func(d fixture) { d.spoil(record.ManifestKey(id)) }, true},
		"its state, and so its end, is not known": {func(d fixture) { d.spoil(record.CoordinatorKey(id)) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t)
				m := d.old(id, 1)
				<-time.After(keep)
				c.given(d)
				d.index()
				before := d.of(id)
				if err := d.expire(); err != nil {
					t.Error(err)
				}
				after := d.of(id)
				if kept := slices.Equal(before, after); kept != c.kept || !kept && !slices.Equal(after, leftOf(m)) {
					t.Errorf("of %v\nare left %v", before, after)
				}
			})
		})
	}
}

func TestParentExpiresAfterItsChildren(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.old(id, 1)
		<-time.After(time.Hour)
		d.old(second, 1, asChild(id))
		d.index()
		<-time.After(keep + time.Hour)
		if err := errors.Join(d.expire(), d.expire()); err != nil {
			t.Error(err)
		}
		x := hosttest.Load[record.RunIndex](t, d.Ports, record.RunIndexKey)
		if x.Ended != 0 || x.Expired != 2 || len(d.under(record.EndedPrefix)) != 0 {
			t.Errorf("%+v", x)
		}
		if left, err := d.Docs.List(t.Context(), record.ParentPrefix(id), "", 1); err != nil || len(left) > 0 {
			t.Errorf("%v, %v", left, err)
		}
	})
}

func TestNothingExpiresBeforeTheIndexHasAllChildren(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.old(id, 1)
		child := d.old(second, 1, asChild(id))
		key := record.NamedKey(record.ParentPrefix(id), child.CreatedAt, second)
		note, err := d.Docs.Get(t.Context(), key)
		if err == nil {
			err = d.Docs.Delete(t.Context(), key, note.Revision) // as an earlier version left it
		}
		if err != nil {
			t.Fatal(err)
		}
		d.index()
		x := hosttest.Load[record.RunIndex](t, d.Ports, record.RunIndexKey)
		x.Linked = false
		d.save(record.RunIndexKey, x)
		<-time.After(2 * keep)
		before := d.of(id)
		if err := d.expire(); err != nil || !slices.Equal(d.of(id), before) {
			t.Errorf("%v are left of %v, %v", d.of(id), before, err)
		}
		if err := d.BuildIndex(t.Context(), 0); err != nil {
			t.Error(err)
		}
		if _, err := d.Docs.Get(t.Context(), key); err != nil {
			t.Error(err)
		}
		if x = hosttest.Load[record.RunIndex](t, d.Ports, record.RunIndexKey); !x.Linked || x.Ended != 2 {
			t.Errorf("%+v", x)
		}
	})
}

// Wherever the process ends, a run that cannot be read any more is known to have expired, its
// entry leads to what is left of it, and the next process goes on and counts it once.
func TestCrashBetweenAnyTwoDeletesLosesNothing(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		for writes := 0; ; writes++ {
			done := false
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t)
				ms := []record.Manifest{d.old(id, 2), d.old(second, 1)}
				d.index()
				<-time.After(2 * keep)
				crashing := d
				crashing.Ports = hosttest.Crashing(d.Ports, writes, late)
				crashing.Docs = document.Reliable(crashing.Docs, retry.Policy{})
				crashed := crashing.expire() != nil
				for _, m := range ms {
					_, err := host.LoadManifest(t.Context(), d.Docs, m.Run)
					if err != nil && !host.IsExpired(err) {
						t.Errorf("after %d writes, run %s is %v", writes, m.Run, err)
					}
					left, want := d.of(m.Run), leftOf(m)
					if found := strings.Contains(fmt.Sprint(left), record.EndedPrefix); !found && !slices.Equal(left, want) {
						t.Errorf("after %d writes, nothing leads to %v", writes, left)
					}
				}
				if err := d.expire(); err != nil {
					t.Error(err)
				}
				for _, m := range ms {
					if left := d.of(m.Run); !slices.Equal(left, leftOf(m)) {
						t.Errorf("after %d writes (late: %t), %v is left", writes, late, left)
					}
				}
				x := hosttest.Load[record.RunIndex](t, d.Ports, record.RunIndexKey)
				if x.Ended != 0 || x.Expired != 2 || len(x.Expiring) != 0 {
					t.Errorf("after %d writes (late: %t): %+v", writes, late, x)
				}
				done = !crashed
			})
			if done || t.Failed() {
				break
			}
		}
	}
}

// Two processes may do it at once. Each run is counted once.
func TestExpiredRunsAreCountedOnceByTwoCalls(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{record.EndedPrefix, record.OpenRunPrefix, "shard/", record.PlanLeaseKey("")[:5]} {
		synctest.Test(t, func(t *testing.T) {
			d := newFixture(t)
			ms := []record.Manifest{d.old(id, 2), d.old(second, 1)}
			d.index()
			<-time.After(2 * keep)
			slow := d
			slow.Ports.Docs = d.overtaken(prefix, func() {
				if err := d.expire(); err != nil {
					t.Error(err)
				}
			}).Docs
			if err := slow.expire(); err != nil {
				t.Error(err)
			}
			if err := d.expire(); err != nil {
				t.Error(err)
			}
			for _, m := range ms {
				if left := d.of(m.Run); !slices.Equal(left, leftOf(m)) {
					t.Errorf("overtaken at %s, %v is left", prefix, left)
				}
			}
			x := hosttest.Load[record.RunIndex](t, d.Ports, record.RunIndexKey)
			if x.Ended != 0 || x.Expired != 2 || len(x.Expiring) != 0 {
				t.Errorf("overtaken at %s: %+v", prefix, x)
			}
		})
	}
}

// stubbornDocs has a document that can't be deleted.
type stubbornDocs struct {
	document.Store
	key string
}

func (s stubbornDocs) Delete(ctx context.Context, key string, rev document.Revision) error {
	if key == s.key {
		return fault.New(fault.Denied, "not permitted")
	}
	return s.Store.Delete(ctx, key, rev)
}

func TestRunThatCannotBeDeletedStopsNoOther(t *testing.T) {
	t.Parallel()
	const third identity.RunID = "01JD2ZQ4T5W0M1X9YB7R3K8CVY"
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.old(id, 1)
		damaged := d.old(third, 1)
		d.spoil(record.EndedKey(damaged.CreatedAt, third))
		d.index()
		<-time.After(2 * keep)
		stubborn := d
		stubborn.Ports.Docs = stubbornDocs{d.Docs, record.PlanKey(id)}
		if err := stubborn.expire(); !fault.Is(err, fault.Denied) {
			t.Error(err)
		}
		m := d.old(second, 1)
		<-time.After(2 * keep)
		_ = stubborn.expire() // the run that ended later expires all the same
		if left := d.of(second); !slices.Equal(left, leftOf(m)) {
			t.Errorf("%v is left", left)
		}
		if err := d.expire(); err != nil {
			t.Error(err)
		}
		if left := d.under(record.EndedPrefix); len(left) != 1 || left[0] != third {
			t.Errorf("the runs %v are left", left)
		}
	})
}

// countingDocs counts the documents that are read, written and deleted.
type countingDocs struct {
	document.Store
	read, written atomic.Int64
}

func (c *countingDocs) List(ctx context.Context, prefix, after string, limit int) ([]document.Doc, error) {
	docs, err := c.Store.List(ctx, prefix, after, limit)
	c.read.Add(int64(len(docs)))
	return docs, err
}

func (c *countingDocs) GetMany(ctx context.Context, keys []string) ([]document.Doc, error) {
	c.read.Add(int64(len(keys)))
	return c.Store.GetMany(ctx, keys)
}

func (c *countingDocs) Create(ctx context.Context, key string, v []byte) (document.Revision, error) {
	c.written.Add(1)
	return c.Store.Create(ctx, key, v)
}

func (c *countingDocs) Replace(ctx context.Context, key string, v []byte,
	old document.Revision) (document.Revision, error) {
	c.written.Add(1)
	return c.Store.Replace(ctx, key, v, old)
}

func (c *countingDocs) Delete(ctx context.Context, key string, rev document.Revision) error {
	c.written.Add(1)
	return c.Store.Delete(ctx, key, rev)
}

// The work of a call is bounded, whatever has ended: 5,000 runs, of which many are needed, and
// one with more shards than a call deletes.
func TestWorkOfACallIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		const runs, needed, shards = 5000, 450, 2 * maxRemoved
		name := func(n int) identity.RunID { return identity.RunID(fmt.Sprintf("01JD%022d", n)) }
		for n := range runs {
			d.old(name(n), 1)
			<-time.After(time.Second)
		}
		for n := range needed { // the last to end
			at := time.Now().Add(100 * keep)
			d.save(record.NamedKey(record.ParentPrefix(name(runs-1-n)), at, second),
				record.NamedRun{Schema: 1, Run: second, Created: at})
		}
		d.running(second, time.Now())
		d.old(id, shards)
		d.index()
		<-time.After(2 * keep)
		docs := &countingDocs{Store: d.Docs}
		counted := d
		counted.Ports.Docs = docs
		e := NewExpirer(counted.Ports, ExpireOptions{Keep: keep, WorkFiles: true})
		calls := 0
		for waits := 0; waits < 20; calls++ {
			docs.read.Store(0)
			docs.written.Store(0)
			more, err := e.Expire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if docs.read.Load() > 4*maxRemoved || docs.written.Load() > 2*maxRemoved {
				t.Fatalf("call %d reads %d documents and writes %d", calls, docs.read.Load(), docs.written.Load())
			}
			x := hosttest.Load[record.RunIndex](t, d.Ports, record.RunIndexKey)
			if len(x.Expiring) > expiringAtOnce || len(record.Encode(x)) > 32<<10 {
				t.Fatalf("%d runs are expiring at once, in %d bytes", len(x.Expiring), len(record.Encode(x)))
			}
			if !more {
				<-time.After(time.Minute)
			}
			if x.Ended == needed {
				waits++
			}
			if calls > 100*runs/expiringAtOnce {
				t.Fatalf("%d runs are left after %d calls", x.Ended, calls)
			}
		}
		x := hosttest.Load[record.RunIndex](t, d.Ports, record.RunIndexKey)
		if x.Ended != needed || x.Expired != runs+1-needed || len(d.under(record.EndedPrefix)) != needed {
			t.Errorf("%+v, with %d entries", x, len(d.under(record.EndedPrefix)))
		}
	})
}
