package api_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"rollout/functions/api"
	"rollout/functions/reclaim"
	"rollout/functions/status"
	"rollout/functions/status/statustest"
	"rollout/shared/clock"
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

// countedDocs counts the requests and the documents that they return.
type countedDocs struct {
	document.Store
	requests, documents int
}

func (c *countedDocs) Get(ctx context.Context, key string) (document.Doc, error) {
	c.requests++
	c.documents++
	return c.Store.Get(ctx, key)
}

func (c *countedDocs) GetMany(ctx context.Context, keys []string) ([]document.Doc, error) {
	c.requests++
	c.documents += len(keys)
	return c.Store.GetMany(ctx, keys)
}

func (c *countedDocs) List(ctx context.Context, prefix, after string, limit int) ([]document.Doc, error) {
	docs, err := c.Store.List(ctx, prefix, after, limit)
	c.requests++
	c.documents += len(docs)
	return docs, err
}

// endedID returns the id of the nth ended run.
func endedID(n int) identity.RunID { return identity.RunID(fmt.Sprintf("01JD%022d", n)) }

// endedRuns saves n ended runs, each an hour after the one before, as reclaim leaves them.
func (d fixture) endedRuns(n int) {
	d.t.Helper()
	for i := range n {
		p := endedProgress(i)
		key, e := status.NewEnded(p)
		d.save(key, e)
		d.save(record.ManifestKey(p.Manifest.Run), p.Manifest)
		d.save(record.CoordinatorKey(p.Manifest.Run), p.State)
		for _, e := range record.NamedEntries(p.Manifest, true) {
			d.save(e.Key, e.NamedRun)
		}
	}
	d.save(record.RunIndexKey, record.RunIndex{Schema: 1, Built: true, Ended: n})
}

func endedProgress(i int) status.Progress {
	m := statustest.Manifest(endedID(i))
	m.Name, m.CreatedAt = fmt.Sprint("night-", i), noon.Add(time.Duration(i-200_000)*time.Hour)
	st := run.New(m.Run)
	st.Phase, st.EndedAt = run.Completed, m.CreatedAt.Add(time.Minute)
	return status.Progress{Manifest: m, State: st}
}

// What users do all day takes as many requests, and reads as many documents, with many
// ended runs as with few.
func TestWorkDoesNotGrowWithEndedRuns(t *testing.T) {
	t.Parallel()
	const most = 3
	page := status.Page{Limit: 20}
	for name, c := range map[string]struct {
		requests int
		do       func(ctx context.Context, s *api.Service) error
	}{
		"status": {most, func(ctx context.Context, s *api.Service) error { _, err := s.Overview(ctx, page); return err }},
		"open":   {1, func(ctx context.Context, s *api.Service) error { _, err := s.Open(ctx); return err }},
		"find by name": {6, func(ctx context.Context, s *api.Service) error {
			r, err := s.Find(ctx, "night-7")
			if err == nil && (len(r) != 1 || r[0].Run != endedID(7)) {
				err = fmt.Errorf("found %v", r)
			}
			return err
		}},
		"find by prefix": {6, func(ctx context.Context, s *api.Service) error {
			r, err := s.Find(ctx, string(endedID(3)[:25]))
			if err == nil && len(r) != api.MaxMatches {
				err = fmt.Errorf("found %v", r)
			}
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read := map[int]countedDocs{}
			for _, n := range []int{30, 3000} {
				d := newFixture(t)
				d.endedRuns(n)
				docs := &countedDocs{Store: d.ports.Docs}
				d.ports.Docs = docs
				if err := c.do(t.Context(), api.New(d.ports, config.DefaultDeployment(), cloud.OneMachine())); err != nil {
					t.Fatal(err)
				}
				read[n] = countedDocs{requests: docs.requests, documents: docs.documents}
			}
			if read[30] != read[3000] || read[3000].requests > c.requests {
				t.Errorf("with 30 and 3,000 ended runs: %+v", read)
			}
		})
	}
}

func TestPageHasTheRunsThatEndedLastAndCountsTheOthers(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.endedRuns(2500)
	for name, c := range map[string]struct {
		page        status.Page
		shown, more int
	}{
		"a limit":             {status.Page{Limit: 20}, 20, 2480},
		"a limit beyond all":  {status.Page{Limit: 9000}, 2500, 0},
		"all":                 {status.Page{}, 2500, 0},
		"since the last five": {status.Page{Since: endedProgress(2495).State.EndedAt}, 5, 2495},
		"since, with a limit": {status.Page{Since: endedProgress(2000).State.EndedAt, Limit: 7}, 7, 2493},
		"since the future":    {status.Page{Since: noon}, 0, 2500},
	} {
		r, err := d.Runs(t.Context(), c.page)
		if err != nil || len(r.Runs) != c.shown || r.More != c.more {
			t.Errorf("%s: %d runs, %d more, %v", name, len(r.Runs), r.More, err)
		}
		for i, s := range r.Runs {
			if s.Run != endedID(2499-i) || s.Phase != run.Completed {
				t.Fatalf("%s: run %d is %+v", name, i, s)
			}
		}
	}
}

// An installation of an earlier version has no index: what users see is the same before
// and after it is made.
func TestInstallationWithoutAnIndexShowsTheSame(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	for i := range 450 {
		p := endedProgress(i)
		d.save(record.ManifestKey(p.Manifest.Run), p.Manifest)
		d.save(record.CoordinatorKey(p.Manifest.Run), p.State)
	}
	d.submitted(runA, run.Running)
	d.save(record.OpenRunKey(runA), record.OpenRun{Schema: 1, Run: runA, At: noon})
	look := func() (out []string) {
		for _, page := range []status.Page{{Limit: 20}, {Since: endedProgress(447).State.EndedAt}, {}} {
			r, err := d.Runs(t.Context(), page)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(record.Encode(r)))
		}
		for _, text := range []string{"night-3", "NIGHT", "nightly", string(runA[:25]), string(endedID(9)[:23]), "x"} {
			r, err := d.Find(t.Context(), text)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, fmt.Sprint(text, len(r)))
			for _, s := range r[:min(1, len(r))] {
				out = append(out, string(s.Run))
			}
		}
		return out
	}
	before := look()
	rc := reclaim.New(d.ports, host.Timings(config.DefaultDeployment().Health))
	for range 2 {
		if err := rc.BuildIndex(t.Context(), 1); err != nil { // a part, as if it was interrupted
			t.Fatal(err)
		}
		if r, err := d.Runs(t.Context(), status.Page{Limit: 20}); err != nil || len(r.Runs) != 21 || r.More != 430 {
			t.Fatalf("meanwhile: %d runs, %d more, %v", len(r.Runs), r.More, err)
		}
	}
	for range 2 {
		if err := rc.BuildIndex(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	if x := hosttest.Load[record.RunIndex](t, d.ports, record.RunIndexKey); !x.Built || x.Ended != 450 {
		t.Errorf("%+v", x)
	}
	after := look()
	for i := range before {
		if before[i] != after[i] {
			t.Errorf("before: %.300s\nafter:  %.300s", before[i], after[i])
		}
	}
}

// A submission that is tried again and again leaves an entry each time.
func TestNameIsFoundBehindEntriesOfFailedSubmissions(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.endedRuns(2)
	m := endedProgress(1).Manifest
	for i := range 20 {
		n := record.NamedRun{Schema: 1, Run: endedID(5), Created: m.CreatedAt.Add(time.Duration(i+1) * time.Second)}
		d.save(record.NamedKey(record.NamePrefix(m.Name), n.Created, n.Run), n)
	}
	for name, want := range map[string]int{m.Name: 1, "no-such-run": 0} {
		if r, err := d.Find(t.Context(), name); err != nil || len(r) != want || want == 1 && r[0].Run != m.Run {
			t.Errorf("%s: found %v, %v", name, r, err)
		}
	}
}

// While the index is made, the newest run with a name may not be entered into it, and an
// older one is.
func TestNameIsTheNewestRunAlsoWhileTheIndexIsMade(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.endedRuns(2)
	d.save(record.RunIndexKey, record.RunIndex{Schema: 1, After: record.ManifestKey(endedID(1))})
	newer := endedProgress(2).Manifest
	newer.Name = endedProgress(1).Manifest.Name
	d.save(record.ManifestKey(newer.Run), newer)
	r, err := d.Find(t.Context(), newer.Name)
	if err != nil || len(r) != 1 || r[0].Run != newer.Run {
		t.Errorf("found %v, %v", r, err)
	}
}

// In a cloud, reclaim looks for lost uploads every hour, and the overview does not ask
// for the runs of older ones again.
func TestOverviewInCloudAsksForRecentUploadsOnly(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	for i := range 5 {
		hosttest.Put(t, d.ports, fmt.Sprintf("prompts/%d.jsonl", i), "{}\n")
	}
	info, err := d.ports.Blobs.Stat(t.Context(), "prompts/0.jsonl", "")
	if err != nil {
		t.Fatal(err)
	}
	profile := statustest.InCloud()
	profile.Capabilities.RemoteBucket = true
	for age, want := range map[time.Duration]int{time.Minute: 5, 3 * time.Hour: 0} {
		p := d.ports
		p.Clock = clock.Fixed(info.ModTime.Add(age))
		o, err := api.New(p, config.DefaultDeployment(), profile).Overview(t.Context(), status.Page{Limit: 20})
		if err != nil || len(o.Uploads) != want {
			t.Errorf("%s after the uploads: %+v, %v", age, o.Uploads, err)
		}
	}
}

func TestEndedEntryThatIsDamagedIsReported(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.endedRuns(1)
	d.save(record.EndedKey(noon, runA), []int{1})
	if _, err := d.Runs(t.Context(), status.Page{Limit: 20}); !fault.Is(err, fault.Corrupt) {
		t.Errorf("got %v", err)
	}
}
