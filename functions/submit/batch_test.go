package submit_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"strings"
	"testing"
	"time"

	"rollout/events"
	"rollout/functions/submit"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/record"
)

// batch creates a batch of a file in the bucket and handles its event twice. It returns the
// manifest of its run.
func (d *fixture) batch(content string, edit func(*record.Batch)) record.Manifest {
	d.t.Helper()
	in := d.put("files/file-1.jsonl", content)
	b := record.Batch{Schema: record.Schema, Run: childID, Created: time.Unix(5, 0).UTC(), File: "file-1",
		FileName: "nightly.jsonl", Input: record.Input{Key: in.Key, Version: in.Version, Size: in.Size},
		Deadline: 90 * time.Minute}
	edit(&b)
	hosttest.Save(d.t, d.Ports, record.BatchKey(b.Run), b)
	for range 2 {
		err := submit.New(d.Ports, submit.Options{Deployment: d.deploy, At: d.at}).Batch(d.t.Context(),
			events.BatchRequested{Run: childID})
		if err != nil {
			d.t.Fatal(err)
		}
	}
	return hosttest.Load[record.Manifest](d.t, d.Ports, record.ManifestKey(childID))
}

func TestBatchBecomesARunOfItsFile(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.put("prompts/rollout.toml", "schema_version = 1\n[shard]\nitems = 3\n")
	m := d.batch("{\"custom_id\":\"a\"}\n", func(*record.Batch) {})
	if m.Refused != "" || m.Name != "nightly" || m.Dialect != "openai" || !m.CreatedAt.Equal(time.Unix(5, 0)) ||
		m.Config.Limits.Deadline.Std() != 90*time.Minute || m.Config.Shard.Items != 3 ||
		m.ConfigKey != "prompts/rollout.toml" || m.Inputs[0].Key != "files/file-1.jsonl" {
		t.Errorf("the run is %+v", m)
	}
	if n := d.planned(); n != 2 {
		t.Errorf("%d plans were asked for by two events", n)
	}
}

func TestBatchWithoutItsFileIsRefused(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	m := d.batch("{\"custom_id\":\"a\"}\n", func(b *record.Batch) { b.Input.Key = "files/gone.jsonl" })
	if !strings.Contains(m.Refused, "file-1 was deleted") {
		t.Errorf("the run is refused with %q", m.Refused)
	}
}

func TestStrictBatchIsRefusedForItsBadLines(t *testing.T) {
	t.Parallel()
	good := `{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"m",` +
		`"messages":[{"role":"user","content":"hi"}]}}` + "\n"
	strict := func(b *record.Batch) { b.Strict, b.Endpoint = true, "/v1/chat/completions" }
	d := newFixture(t)
	if m := d.batch(good+"\n"+good, strict); m.Refused != "" {
		t.Errorf("good lines are refused: %s", m.Refused)
	}
	d = newFixture(t)
	m := d.batch(good+"no json\n\n"+strings.Replace(good, "chat/completions", "embeddings", 1)+
		strings.Replace(good, `"messages":[`, `"messages":[5,`, 1), strict)
	bad := hosttest.Load[record.Batch](t, d.Ports, record.BatchKey(childID)).BadLines
	if !strings.Contains(m.Refused, "line 2 is invalid, and 2 further ones") || len(bad) != 3 || bad[1].Line != 4 ||
		bad[2].Line != 5 || !strings.Contains(bad[2].Message, "messages") {
		t.Errorf("the run is refused with %q, the lines are %+v", m.Refused, bad)
	}
	d = newFixture(t)
	d.batch(strings.Repeat("no json\n", 500), strict)
	if bad := hosttest.Load[record.Batch](t, d.Ports, record.BatchKey(childID)).BadLines; len(bad) != 100 {
		t.Errorf("%d bad lines are noted", len(bad))
	}
}

// A strict batch is read whole before it begins, but no archive may take that for ever.
func TestStrictBatchUnpacksNoMoreThanItMay(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(bytes.Repeat([]byte("\n"), 1<<20))
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	d := newFixture(t)
	d.put("prompts/rollout.toml", "schema_version = 1\n[input]\nmax_unpacked = 1000\n")
	m := d.batch(packed.String(), func(b *record.Batch) {
		b.Strict, b.Endpoint, b.Input.Packed = true, "/v1/chat/completions", input.Gzip
	})
	if !strings.Contains(m.Refused, "too many bytes when it is unpacked") {
		t.Errorf("the run is refused with %q", m.Refused)
	}
}
