package submit_test

import (
	"fmt"
	"testing"
	"time"

	"rollout/events"
	"rollout/functions/plan"
	"rollout/functions/submit"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// plan plans all runs that were submitted since the last call.
func (d *fixture) plan() {
	d.t.Helper()
	p := plan.New(d.Ports, plan.Options{})
	for _, q := range []string{host.TaskQueue, host.PlanQueue} {
		ms, err := d.Queues.Receive(d.t.Context(), q, 100, time.Minute, 0)
		if err != nil {
			d.t.Fatal(err)
		}
		for _, m := range ms {
			_ = d.Queues.Ack(d.t.Context(), q, []string{m.Receipt})
			switch _, e, _ := events.Decode(m.Body); e := e.(type) {
			case events.RunSubmitted:
				err = p.Submitted(d.t.Context(), e)
			case events.PlanRange:
				err = p.CutRange(d.t.Context(), e)
			}
			if err != nil {
				d.t.Fatal(err)
			}
		}
	}
}

// appears puts a file that the bucket finds in that way, and handles its event. It returns
// the run that it is.
func (d *fixture) appears(key, content string, how blob.Found) identity.RunID {
	d.t.Helper()
	e := d.put(key, content)
	e.Found = string(how)
	s := submit.New(d.Ports, submit.Options{Deployment: d.deploy, At: d.at,
		Moved: func(string, string) bool { return d.moved }})
	for range 2 { // a repeated event changes nothing
		if err := s.Uploaded(d.t.Context(), e); err != nil {
			d.t.Fatal(err)
		}
	}
	m, err := host.LoadUpload(d.t.Context(), d.Docs, identity.UploadRun("local", e.Key, e.Version))
	if err != nil {
		d.t.Fatal(err)
	}
	return m.Run
}

const others = "{\"prompt\":\"2\"}\n"

// A restored folder has its objects under other versions. What made a run before is that
// run.
func TestKeptObjectIsTheRunThatItWasBefore(t *testing.T) {
	t.Parallel()
	const key = "prompts/x.jsonl"
	for name, c := range map[string]struct {
		change  func(d *fixture)
		content string
		how     blob.Found
		same    bool
	}{
		"same bytes":                {content: prompt, how: blob.Kept, same: true},
		"other bytes":               {content: others, how: blob.Kept},
		"more bytes":                {content: prompt + others, how: blob.Kept},
		"uploaded while it runs":    {content: prompt, how: blob.Written},
		"put back while it is open": {content: prompt, how: blob.Returned, same: true},
		"other bytes at its key":    {content: others, how: blob.Returned},
		"put back after its end": {content: prompt, how: blob.Returned, change: func(d *fixture) {
			doc := d.onlyOpen()
			if err := d.Docs.Delete(d.t.Context(), doc.Key, doc.Revision); err != nil {
				d.t.Fatal(err)
			}
		}},
		"another config": {content: prompt, how: blob.Kept, change: func(d *fixture) {
			hosttest.Put(d.t, d.Ports, "prompts/x.toml", "schema_version = 1\n[shard]\nitems = 3\n")
		}},
		"work files deleted, touched": {content: prompt, how: blob.Kept, change: (*fixture).clean},
		"work files deleted, moved": {content: prompt, how: blob.Kept, same: true, change: func(d *fixture) {
			d.clean()
			d.moved = true
		}},
	} {
		d := newFixture(t)
		first := d.upload(key, prompt)
		d.plan()
		if c.change != nil {
			c.change(d)
		}
		if got := d.appears(key, c.content, c.how); (got == first.Run) != c.same {
			t.Errorf("%s: run %s became %s", name, first.Run, got)
		}
	}
}

// Trials may leave their model to the deployment. That the run has resolved it makes no other run.
func TestKeptTasksWithoutAModelAreTheRunThatTheyWere(t *testing.T) {
	t.Parallel()
	const tasks = `{"id":"a","prompt":"1"}` + "\n"
	d := newFixture(t)
	d.put("prompts/x.toml", "schema_version = 1\nkind = 'trials'\n[[variant]]\nname = 'a'\n")
	first := d.upload("prompts/x.jsonl", tasks)
	d.plan()
	if got := d.appears("prompts/x.jsonl", tasks, blob.Kept); first.Refused != "" || got != first.Run {
		t.Errorf("run %s (%s) became %s", first.Run, first.Refused, got)
	}
}

// Earlier versions wrote into manifests how many items a shard has if none is chosen. A file
// that was a run then is not run again.
func TestKeptObjectIsTheRunOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.deploy.Defaults.Shard.Items = shardtable.DefaultItems
	first := d.upload("prompts/x.jsonl", prompt)
	d.plan()
	d.deploy.Defaults.Shard.Items = 0
	if got := d.appears("prompts/x.jsonl", prompt, blob.Kept); got != first.Run || first.Config.Shard.Items == 0 {
		t.Errorf("run %s with %d items a shard became %s", first.Run, first.Config.Shard.Items, got)
	}
}

// onlyOpen returns the index entry of the only open run.
func (d *fixture) onlyOpen() document.Doc {
	page, err := d.Docs.List(d.t.Context(), record.OpenRunPrefix, "", 10)
	if err != nil || len(page) != 1 {
		d.t.Fatal(page, err)
	}
	return page[0]
}

// clean deletes the work files of the only run.
func (d *fixture) clean() {
	page, err := d.Blobs.List(d.t.Context(), record.WorkPrefix, "", 100)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, o := range page {
		if err := d.Blobs.Delete(d.t.Context(), o.Key, ""); err != nil {
			d.t.Fatal(err)
		}
	}
}

// An object that was two runs one after the other is the one whose bytes it has.
func TestKeptObjectIsTheLatestRunOfItsBytes(t *testing.T) {
	t.Parallel()
	const key = "prompts/x.jsonl"
	d := newFixture(t)
	one := d.upload(key, prompt).Run
	d.plan()
	two := d.upload(key, others).Run
	d.plan()
	if got := d.appears(key, prompt, blob.Kept); got != one {
		t.Errorf("the first bytes are run %s, want %s", got, one)
	}
	if got := d.appears(key, others, blob.Kept); got != two {
		t.Errorf("the second bytes are run %s, want %s", got, two)
	}
}

// A file system may show a file under another version at any time, also that of a run which
// began after the first such object.
func TestKeptObjectIsTheRunOfThisProcess(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	s := submit.New(d.Ports, submit.Options{Deployment: d.deploy, At: d.at})
	runs := map[string]identity.RunID{}
	for n, step := range []struct {
		key string
		how blob.Found
	}{{"prompts/old.jsonl", blob.Kept}, {"prompts/new.jsonl", blob.Written}, {"prompts/new.jsonl", blob.Kept}} {
		e := d.put(step.key, prompt)
		e.Found = string(step.how)
		if err := s.Uploaded(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		d.plan()
		m, err := host.LoadUpload(t.Context(), d.Docs, identity.UploadRun("local", e.Key, e.Version))
		if err != nil {
			t.Fatal(err)
		}
		if n == 2 && m.Run != runs[step.key] {
			t.Errorf("run %s became %s", runs[step.key], m.Run)
		}
		runs[step.key] = m.Run
	}
}

// An open run of which nothing is planned goes on with the object of its size.
func TestKeptObjectIsTheRunThatIsNotPlannedYet(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	first := d.upload("prompts/x.jsonl", prompt).Run
	if got := d.appears("prompts/x.jsonl", prompt, blob.Kept); got != first {
		t.Errorf("run %s became %s", first, got)
	}
}

// A kept object that is refused for the reason of before is not refused twice, but one that
// can run now does.
func TestKeptObjectThatWasRefused(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	hosttest.Put(t, d.Ports, "prompts/x.toml", "schema_version = 1\nname = 3\n")
	refused := d.upload("prompts/x.jsonl", prompt)
	if refused.Refused == "" {
		t.Fatal("it is not refused")
	}
	if got := d.appears("prompts/x.jsonl", prompt, blob.Kept); got != refused.Run {
		t.Errorf("run %s became %s", refused.Run, got)
	}
	hosttest.Put(t, d.Ports, "prompts/x.toml", "schema_version = 1\n")
	if got := d.appears("prompts/x.jsonl", prompt, blob.Kept); got == refused.Run {
		t.Error("it stays refused, though its config was corrected")
	}
}

// Entries of runs of other sizes, of tries that became no run, and those that can't be read
// hide no earlier run of the object.
func TestKeptObjectIsFoundBehindManyOtherEntries(t *testing.T) {
	t.Parallel()
	const key, many = "prompts/x.jsonl", 1200
	d := newFixture(t)
	first := d.upload(key, prompt)
	d.plan()
	hosttest.Save(t, d.Ports, record.RunIndexKey, record.RunIndex{Schema: 1, Built: true})
	tried := identity.UploadRun("local", key, "tried")
	for i := range many {
		n := record.NamedRun{Schema: 1, Run: tried, Created: first.CreatedAt.Add(time.Duration(i+1) * time.Second)}
		switch i % 3 {
		case 0:
			n.Size = int64(len(prompt))
		case 1:
			n.Run = identity.UploadRun("local", key, fmt.Sprint(i))
		}
		hosttest.Save(t, d.Ports, record.NamedKey(record.InputPrefix(key), n.Created, n.Run), n)
	}
	at := first.CreatedAt.Add(time.Hour)
	hosttest.Save(t, d.Ports, record.NamedKey(record.InputPrefix(key), at, tried), []int{1})
	if got := d.appears(key, prompt, blob.Kept); got != first.Run {
		t.Errorf("run %s became %s", first.Run, got)
	}
}
