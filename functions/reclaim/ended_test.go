package reclaim

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/functions/status"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// crashingDocs lets so many writes pass. The next one is lost or, if late is set, applied
// without a reply; after it, everything fails, as if the process had ended.
type crashingDocs struct {
	document.Store
	left int
	late bool
}

func (c *crashingDocs) write(do func() error) error {
	c.left--
	if c.left == -1 && c.late {
		_ = do()
	}
	if c.left < 0 {
		return fault.New(fault.Denied, "the process crashed")
	}
	return do()
}

func (c *crashingDocs) Create(ctx context.Context, key string, v []byte) (rev document.Revision, err error) {
	err = c.write(func() error { rev, err = c.Store.Create(ctx, key, v); return err })
	return rev, err
}

func (c *crashingDocs) Replace(ctx context.Context, key string, v []byte, old document.Revision) (
	rev document.Revision, err error) {
	err = c.write(func() error { rev, err = c.Store.Replace(ctx, key, v, old); return err })
	return rev, err
}

func (c *crashingDocs) Delete(ctx context.Context, key string, rev document.Revision) error {
	return c.write(func() error { return c.Store.Delete(ctx, key, rev) })
}

// under returns the runs under a prefix, without the index itself.
func (d fixture) under(prefix string) (out []identity.RunID) {
	d.t.Helper()
	for doc, err := range document.All(d.t.Context(), d.Docs, prefix) {
		if err != nil {
			d.t.Fatal(err)
		}
		if id, ok := record.RunOfEntry(strings.Replace(doc.Key, "open/", ".", 1)); ok && doc.Key != record.RunIndexKey {
			out = append(out, id)
		}
	}
	return out
}

// Wherever the process ends, an ended run is in one of the two indexes, and it is counted
// once.
func TestEndedRunMovesBetweenIndexesOnce(t *testing.T) {
	t.Parallel()
	const second identity.RunID = "01JD2ZQ4T5W0M1X9YB7R3K8CVX"
	for _, late := range []bool{false, true} {
		for writes := 0; ; writes++ {
			done := false
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t)
				d.running(id, time.Now(), func(s *run.State) { s.Phase, s.EndedAt = run.Completed, time.Now() })
				d.running(second, time.Now(), func(s *run.State) { s.Phase, s.EndedAt = run.Stopped, time.Now() })
				crashing := &crashingDocs{Store: d.Docs, left: writes, late: late}
				p := d.Ports
				p.Docs = crashing
				crashed := New(p, host.Timings(config.DefaultDeployment().Health)).Scan(t.Context()) != nil
				for _, r := range []identity.RunID{id, second} {
					found := fmt.Sprint(d.under(record.OpenRunPrefix), d.under(record.EndedPrefix))
					if !strings.Contains(found, string(r)) {
						t.Errorf("run %s is in no index after %d writes: %s", r, writes, found)
					}
				}
				if err := d.Scan(t.Context()); err != nil {
					t.Error(err)
				}
				open, ended := d.under(record.OpenRunPrefix), d.under(record.EndedPrefix)
				index := hosttest.Load[record.RunIndex](t, d.Ports, record.RunIndexKey)
				if len(open) != 0 || len(ended) != 2 || index.Ended != 2 {
					t.Errorf("after %d writes (late: %t): %v are open, %v have ended, counted as %d", writes, late, open, ended,
						index.Ended)
				}
				done = !crashed
			})
			if done || t.Failed() {
				break
			}
		}
	}
}

// The entry of an ended run is what its status was.
func TestEntryOfEndedRunIsItsStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.running(id, time.Now().Add(-time.Hour), func(s *run.State) { s.Phase, s.EndedAt = run.Stopped, time.Now() })
		read := status.NewReader(d.Ports, config.DefaultDeployment(), cloud.OneMachine())
		before, err := read.Progress(t.Context(), id, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Scan(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := d.BuildIndex(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		after, err := read.Ended(t.Context(), status.Page{Limit: 1})
		if err != nil || len(after.Runs) != 1 {
			t.Fatalf("%+v, %v", after, err)
		}
		want, got := string(record.Encode(status.Of(before, time.Now()))), string(record.Encode(after.Runs[0]))
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}
