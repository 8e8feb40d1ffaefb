package submit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"rollout/events"
	"rollout/functions/reclaim"
	"rollout/functions/submit"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// end saves that a run has ended, and enters it into the index of ended runs.
func (d *fixture) end(id identity.RunID) {
	d.t.Helper()
	s := run.New(id)
	if _, _, err := host.Load(d.t.Context(), d.Docs, record.CoordinatorKey(id), &s); err != nil {
		d.t.Fatal(err)
	}
	if !s.Phase.Ended() {
		s.Phase = run.Completed
	}
	s.EndedAt = time.Now()
	hosttest.Save(d.t, d.Ports, record.CoordinatorKey(id), s)
	hosttest.Save(d.t, d.Ports, record.OpenRunKey(id), record.OpenRun{Schema: record.Schema, Run: id, At: time.Now()})
	r := reclaim.New(d.Ports, host.Timings(d.deploy.Health))
	if err := errors.Join(r.Scan(d.t.Context()), r.BuildIndex(d.t.Context(), 0)); err != nil {
		d.t.Fatal(err)
	}
}

// expire deletes the documents of all ended runs, as it is done days later.
func (d *fixture) expire() {
	d.t.Helper()
	for _, later := range []time.Duration{48 * time.Hour, 49 * time.Hour} {
		p := d.Ports
		p.Clock = clock.Skewed{Offset: later}
		e := reclaim.NewExpirer(p, reclaim.ExpireOptions{Keep: time.Hour, WorkFiles: true})
		if err := e.ExpireAll(d.t.Context()); err != nil {
			d.t.Fatal(err)
		}
	}
}

// The input of a run that has expired is not run again: neither by an event that is repeated,
// nor by the scan for uploads, nor in a folder that was copied. What a user writes anew is.
func TestInputOfAnExpiredRunIsRunAgainOnlyIfItIsUploadedAgain(t *testing.T) {
	t.Parallel()
	const key = "prompts/x.jsonl"
	for name, c := range map[string]struct {
		how         blob.Found
		moved, runs bool
	}{
		"copied with its times":   {blob.Kept, true, false},
		"copied and touched":      {blob.Kept, false, true},
		"uploaded again":          {blob.Written, true, true},
		"moved away and put back": {blob.Returned, true, true},
	} {
		d := newFixture(t)
		d.moved = c.moved
		first := d.put(key, prompt)
		sub := submit.New(d.Ports, submit.Options{Deployment: d.deploy, At: d.at,
			Moved: func(string, string) bool { return d.moved }})
		if err := sub.Uploaded(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		d.end(d.manifest(first).Run)
		d.expire()
		d.planned()
		for _, remote := range []bool{false, true} {
			at := d.at
			at.RemoteBucket = remote
			s := submit.New(d.Ports, submit.Options{Deployment: d.deploy, At: at})
			if err := s.Uploaded(t.Context(), first); err != nil || d.planned() != 0 || d.manifest(first).Run != "" {
				t.Errorf("%s: a repeated event makes the run %+v, %v", name, d.manifest(first), err)
			}
		}
		later := d.Ports
		later.Clock = clock.Skewed{Offset: 2 * time.Hour}
		err := reclaim.ScanUploads(t.Context(), later, reclaim.UploadOptions{Bucket: "local", Found: blob.Kept})
		if n := d.planned(); err != nil || n != 0 {
			t.Errorf("%s: the scan for uploads sends %d events, %v", name, n, err)
		}
		again := d.put(key, prompt)
		again.Found = string(c.how)
		for range 2 {
			if err := sub.Uploaded(t.Context(), again); err != nil {
				t.Fatal(err)
			}
		}
		_, err = host.LoadUpload(t.Context(), d.Docs, identity.UploadRun("local", again.Key, again.Version))
		if runs := d.manifest(again).Run != ""; runs != c.runs || runs && err != nil || !runs && !host.IsExpired(err) {
			t.Errorf("%s: the upload is the run %+v, %v", name, d.manifest(again), err)
		}
	}
}

// deniedDocs are documents that this process may not create.
type deniedDocs struct{ document.Store }

func (deniedDocs) Create(context.Context, string, []byte) (document.Revision, error) {
	return "", fault.New(fault.Denied, "not permitted")
}

// An event is repeated if it could not be noted that its object is the input of a run that has
// expired.
func TestUnnotedInputOfAnExpiredRunIsAnError(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.end(d.upload("prompts/x.jsonl", prompt).Run)
	d.expire()
	again := d.put("prompts/x.jsonl", prompt)
	again.Found = string(blob.Kept)
	p := d.Ports
	p.Docs = deniedDocs{d.Docs}
	s := submit.New(p, submit.Options{Deployment: d.deploy, At: d.at, Moved: func(string, string) bool { return true }})
	if err := s.Uploaded(t.Context(), again); !fault.Is(err, fault.Denied) {
		t.Error(err)
	}
}

// A parent that is about to expire has no child any more, and one that a child was noted under
// does not expire.
func TestRunExpiresOrHasAChild(t *testing.T) {
	t.Parallel()
	t.Run("expiring", func(t *testing.T) {
		t.Parallel()
		d := newFixture(t)
		parent := d.ended()
		d.end(parent.Run)
		x := hosttest.Load[record.RunIndex](t, d.Ports, record.RunIndexKey)
		x.Expiring = []record.Expiring{{Entry: record.EndedKey(time.Now(), parent.Run)}}
		hosttest.Save(t, d.Ports, record.RunIndexKey, x)
		if m := d.retry(parent, []string{"timeout"}); !strings.Contains(m.Refused, "about to expire") {
			t.Errorf("%+v", m)
		}
	})
	t.Run("expired", func(t *testing.T) {
		t.Parallel()
		d := newFixture(t)
		parent := d.ended()
		d.end(parent.Run)
		d.expire()
		err := submit.New(d.Ports, submit.Options{Deployment: d.deploy, At: d.at}).Retry(t.Context(),
			events.RetryRequested{Run: childID, Parent: string(parent.Run), Only: []string{"timeout"}})
		if !fault.Is(err, fault.NotFound) || !host.IsExpired(err) {
			t.Error(err)
		}
	})
	t.Run("has a child", func(t *testing.T) {
		t.Parallel()
		d := newFixture(t)
		parent := d.ended()
		d.end(parent.Run)
		if m := d.retry(parent, []string{"timeout"}); m.Refused != "" {
			t.Fatal(m.Refused)
		}
		d.expire()
		if _, err := host.LoadManifest(t.Context(), d.Docs, parent.Run); err != nil {
			t.Error(err)
		}
	})
}
