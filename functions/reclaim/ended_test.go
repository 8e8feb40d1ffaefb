package reclaim

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollout/functions/status"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/document"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
	"rollout/shared/retry"
)

const second identity.RunID = "01JD2ZQ4T5W0M1X9YB7R3K8CVX"

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
	for _, late := range []bool{false, true} {
		for writes := 0; ; writes++ {
			done := false
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t)
				d.running(id, time.Now(), func(s *run.State) { s.Phase, s.EndedAt = run.Completed, time.Now() })
				d.running(second, time.Now(), func(s *run.State) { s.Phase, s.EndedAt = run.Stopped, time.Now() })
				p := hosttest.Crashing(d.Ports, writes, late)
				p.Docs = document.Reliable(p.Docs, retry.Policy{})
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

// spoil writes a document that no version of rollout can read.
func (d fixture) spoil(key string) {
	d.t.Helper()
	doc, err := d.Docs.Get(d.t.Context(), key)
	if err == nil {
		_, err = d.Docs.Replace(d.t.Context(), key, []byte("{"), doc.Revision)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// damages make that the run can't be entered into the index of ended ones.
var damages = map[string]func(d fixture){
	"its manifest is damaged": func(d fixture) { d.spoil(record.ManifestKey(id)) },
	"its plan is damaged": func(d fixture) {
		d.save(record.PlanKey(id), record.Plan{Schema: 1})
		d.spoil(record.PlanKey(id))
	},
	"its entry is too large": func(d fixture) {
		s := hosttest.Load[run.State](d.t, d.Ports, record.CoordinatorKey(id))
		s.Message = strings.Repeat("m", document.MaxValue-len(record.Encode(s))-20)
		d.save(record.CoordinatorKey(id), s)
	},
}

// bothEnded saves two runs that have ended and are still among the open ones.
func (d fixture) bothEnded() {
	for _, r := range []identity.RunID{id, second} {
		d.running(r, time.Now(), func(s *run.State) { s.Phase, s.EndedAt = run.Stopped, time.Now() })
	}
}

func TestRunThatCannotBeEnteredStopsNoOther(t *testing.T) {
	t.Parallel()
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			d.bothEnded()
			damage(d)
			d.FreeWith(NewFreer(d.Ports))
			logged := ""
			for range 2 {
				if err := d.Scan(t.Context()); err != nil {
					t.Error(err)
				}
				if logged == "" {
					logged = d.log.String()
				}
			}
			open, ended := fmt.Sprint(d.under(record.OpenRunPrefix)), fmt.Sprint(d.under(record.EndedPrefix))
			if open != fmt.Sprintf("[%s]", id) || ended != fmt.Sprintf("[%s]", second) || !d.Idle() {
				t.Errorf("open: %s, ended: %s, idle: %t", open, ended, d.Idle())
			}
			if !strings.Contains(logged, string(id)) || d.log.String() != logged {
				t.Errorf("logged %s\nand then %s", logged, d.log)
			}
		})
	}
}

func TestIndexIsBuiltThoughARunCannotBeEntered(t *testing.T) {
	t.Parallel()
	damages := maps.Clone(damages)
	damages["its state is damaged"] = func(d fixture) { d.spoil(record.CoordinatorKey(id)) }
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			d.bothEnded()
			damage(d)
			d.forgetNotes()
			if err := d.BuildIndex(t.Context(), 0); err != nil {
				t.Error(err)
			}
			ended, x := d.under(record.EndedPrefix), hosttest.Load[record.RunIndex](t, d.Ports, record.RunIndexKey)
			if len(ended) != 1 || ended[0] != second || !x.Built || x.Ended != 1 {
				t.Errorf("ended: %s, index: %+v", ended, x)
			}
			if !strings.Contains(d.log.String(), string(id)) {
				t.Errorf("logged %s", d.log)
			}
		})
	}
}

// forgetNotes empties the index of open runs, as before there was one.
func (d fixture) forgetNotes() {
	d.t.Helper()
	for doc, err := range document.All(d.t.Context(), d.Docs, record.OpenRunPrefix) {
		if err == nil {
			err = d.Docs.Delete(d.t.Context(), doc.Key, doc.Revision)
		}
		if err != nil {
			d.t.Fatal(err)
		}
	}
}

// overtakenDocs has another process do something after the first list or read of documents
// with a prefix.
type overtakenDocs struct {
	document.Store
	prefix string
	other  func()
	once   *sync.Once
}

func (o overtakenDocs) List(ctx context.Context, prefix, after string, limit int) ([]document.Doc, error) {
	docs, err := o.Store.List(ctx, prefix, after, limit)
	if prefix == o.prefix {
		o.once.Do(o.other)
	}
	return docs, err
}

func (o overtakenDocs) GetMany(ctx context.Context, keys []string) ([]document.Doc, error) {
	docs, err := o.Store.GetMany(ctx, keys)
	if len(keys) > 0 && strings.HasPrefix(keys[0], o.prefix) {
		o.once.Do(o.other)
	}
	return docs, err
}

// overtaken returns a reclaimer that another process overtakes when it has read such documents.
func (d fixture) overtaken(prefix string, other func()) *Reclaimer {
	p := d.Ports
	p.Docs = document.Reliable(overtakenDocs{d.Docs, prefix, other, new(sync.Once)}, retry.Policy{})
	return New(p, d.timings)
}

// Two processes may scan at once. Each run is counted once, also if the other process has
// moved others since.
func TestEndedRunsAreCountedOnceByTwoScans(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.running(id, time.Now(), func(s *run.State) { s.Phase, s.EndedAt = run.Stopped, time.Now() })
	slow := d.overtaken(record.ManifestPrefix, func() {
		d.scan()
		d.running(second, time.Now(), func(s *run.State) { s.Phase, s.EndedAt = run.Stopped, time.Now() })
		d.scan()
	})
	if err := slow.Scan(t.Context()); err != nil {
		t.Error(err)
	}
	if x := hosttest.Load[record.RunIndex](t, d.Ports, record.RunIndexKey); x.Ended != 2 {
		t.Errorf("counted as %d", x.Ended)
	}
}

// The count of an index that is built is that of its entries, whatever was counted before.
func TestBuiltIndexCountsItsEntries(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.bothEnded()
	d.scan()
	x := hosttest.Load[record.RunIndex](t, d.Ports, record.RunIndexKey)
	x.Ended = 7
	d.save(record.RunIndexKey, x)
	const third identity.RunID = "01JD2ZQ4T5W0M1X9YB7R3K8CVY"
	d.running(third, time.Now(), func(s *run.State) { s.Phase, s.EndedAt = run.Stopped, time.Now() })
	p, err := d.reader.Progress(t.Context(), third, nil)
	if err != nil {
		t.Fatal(err)
	}
	key, e := status.NewEnded(p)
	d.save(key, e) // by a scan that counts it later
	if err := d.BuildIndex(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if x = hosttest.Load[record.RunIndex](t, d.Ports, record.RunIndexKey); x.Ended != 2 || !x.Built {
		t.Errorf("built as %+v", x)
	}
	d.scan()
	if x = hosttest.Load[record.RunIndex](t, d.Ports, record.RunIndexKey); x.Ended != 3 {
		t.Errorf("then %+v", x)
	}
}

func TestSlowerBuildLeavesABuiltIndexAsItIs(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.bothEnded()
	d.forgetNotes()
	var built record.RunIndex
	slow := d.overtaken(record.ManifestPrefix, func() {
		if err := d.BuildIndex(t.Context(), 0); err != nil {
			t.Error(err)
		}
		built = hosttest.Load[record.RunIndex](t, d.Ports, record.RunIndexKey)
	})
	if err := slow.BuildIndex(t.Context(), 1); err != nil {
		t.Error(err)
	}
	x := hosttest.Load[record.RunIndex](t, d.Ports, record.RunIndexKey)
	if !x.Built || x.Ended != 2 || x.After != built.After {
		t.Errorf("%+v became %+v", built, x)
	}
}
