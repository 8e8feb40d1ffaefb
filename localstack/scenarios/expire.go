package scenarios

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"rollout/functions/reclaim"
	"rollout/localstack/fakellm"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/host"
	"rollout/shared/ownership"
	"rollout/shared/record"
)

// The documents of a run and of its retry expire, the parent's after the child's. Their files
// stay, and the upload is not run again. What uploads to the API have left behind is deleted. See
// Installation.Reclaim for the rights that this needs.
func documentsExpire(t *testing.T, c Cloud) {
	d := deploy(t, c, fakellm.Config{}, Settings{Machines: 1, Faults: 1, More: "\n[storage]\nkeep_documents = \"1h\"\n"})
	parent := d.Put("prompts/x.jsonl", SimplePrompts(60))
	first := d.AwaitEnd(parent)
	d.awaitIndexed(1)
	child := identity.RunID(strings.TrimSpace(d.Do("retry", string(parent), "--all")))
	WantSame(t, d.AwaitEnd(child), first)
	d.awaitIndexed(2)
	asked := d.server.Requests()
	orphans := d.leaveOrphans()
	// By then, the events of their ends were delivered, or never will be.
	for _, later := range []time.Duration{26 * time.Hour, 27 * time.Hour, 28 * time.Hour, 29 * time.Hour} {
		p := d.reclaimAfter(later)
		e := reclaim.NewExpirer(p, reclaim.ExpireOptions{Keep: d.Stores().Deployment.Storage.KeepDocuments.Std()})
		if err := e.ExpireAll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	d.wantExpired(parent, child)
	d.wantSwept(orphans)
	for _, later := range []time.Duration{time.Hour, 3 * time.Hour} {
		err := reclaim.ScanUploads(t.Context(), d.reclaimAfter(later), reclaim.UploadOptions{
			Bucket: d.Stores().Deployment.Bucket, Recent: true, CheckOwner: ownership.OfCloud(d.Reclaim()).Check})
		if err != nil {
			t.Error(err)
		}
	}
	_, err := host.LoadManifest(t.Context(), d.Stores().Ports.Docs, parent)
	if !host.IsExpired(err) || d.server.Requests() != asked {
		t.Errorf("the upload is run again: %v, with %d requests", err, d.server.Requests()-asked)
	}
	for _, id := range []identity.RunID{parent, child} {
		got, ok := d.Find(record.OutputKey(id, record.CompletionsFile))
		if !ok || WithoutTimes(got) != first.Completions || got == "" {
			t.Errorf("the answers of %s have changed to %.200q", id, got)
		}
	}
}

// leaveOrphans puts what uploads to the API leave behind that were given up, and a file that expires,
// and returns the keys of the objects.
func (d *Fixture) leaveOrphans() (objects []string) {
	d.t.Helper()
	p, u := d.Stores().Ports, record.Upload{Schema: record.Schema, ID: "upload_A", Created: time.Now()}
	if err := reclaim.SweepOrphans(d.t.Context(), p, reclaim.SweepOptions{}); err != nil { // older objects stay
		d.t.Fatal(err)
	}
	if _, err := host.Save(d.t.Context(), p.Docs, record.UploadKey(u.ID), u, ""); err != nil {
		d.t.Fatal(err)
	}
	expiring := ExpiringFile()
	if _, err := host.Save(d.t.Context(), p.Docs, record.FileKey(expiring.ID), expiring, ""); err != nil {
		d.t.Fatal(err)
	}
	objects = []string{record.FilesPrefix + "file-00000000000000000000000000.jsonl", record.UploadPartKey(u.ID, "part_A"),
		expiring.Input.Key}
	for _, key := range objects {
		if _, err := p.Blobs.Put(d.t.Context(), key, strings.NewReader("x"), blob.PutOptions{}); err != nil {
			d.t.Fatal(err)
		}
	}
	return objects
}

// ExpiringFile returns a file of the batch API that expires in a minute.
func ExpiringFile() record.File {
	const id = "file-00000000000000000000000001"
	return record.File{Schema: record.Schema, ID: id, Created: time.Now(), Expires: time.Now().Add(time.Minute),
		Input: record.Input{Key: record.FilesPrefix + id + ".jsonl"}}
}

// wantSwept checks that reclaim deletes those objects, and the documents of their upload and file.
func (d *Fixture) wantSwept(objects []string) {
	d.t.Helper()
	err := reclaim.SweepOrphans(d.t.Context(), d.reclaimAfter(30*time.Hour),
		reclaim.SweepOptions{CheckOwner: ownership.OfCloud(d.Reclaim()).Check})
	if err != nil {
		d.t.Fatal(err)
	}
	for _, key := range objects {
		if _, ok := d.Find(key); ok {
			d.t.Errorf("%s is left", key)
		}
	}
	for _, prefix := range []string{record.UploadPrefix, record.FilePrefix} {
		for doc, err := range document.All(d.t.Context(), d.Stores().Ports.Docs, prefix) {
			d.t.Errorf("%s is left, %v", doc.Key, err)
		}
	}
}

// awaitIndexed waits until the index of runs is complete and has n ended ones.
func (d *Fixture) awaitIndexed(n int) {
	d.t.Helper()
	Eventually(d.t, "the ended runs are in the index", func() bool {
		var x record.RunIndex
		_, _, err := host.Load(d.t.Context(), d.Stores().Ports.Docs, record.RunIndexKey, &x)
		return err == nil && x.Linked && x.Ended == n
	})
}

// reclaimAfter returns the ports of reclaim's function, as they will be after that time.
func (d *Fixture) reclaimAfter(later time.Duration) host.Ports {
	d.t.Helper()
	p := d.Reclaim().Stores().Ports
	p.Clock = clock.Skewed{Offset: later}
	return p
}

// wantExpired checks that nothing is left of a run and its child but a note, which commands
// tell, and files, which they read.
func (d *Fixture) wantExpired(parent, child identity.RunID) {
	d.t.Helper()
	for doc, err := range document.All(d.t.Context(), d.Stores().Ports.Docs, "") {
		if err != nil {
			d.t.Fatal(err)
		}
		for _, id := range []string{string(parent), string(child)} {
			if strings.Contains(doc.Key, id) && !strings.HasPrefix(doc.Key, record.FoundPrefix) {
				d.t.Errorf("%s is left", doc.Key)
			}
		}
	}
	for _, id := range []string{string(parent), string(child), string(child)[:20]} {
		out, err := d.Command("status", id)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(out, "its documents have expired") {
			d.t.Errorf("status %s: %v\n%s", id, err, out)
		}
		out, err = d.Command("results", id)
		if err != nil || strings.Count(out, `"completion"`) != 60 {
			d.t.Errorf("results %s: %v\n%s", id, err, out)
		}
	}
	if out, err := d.Command("status"); err != nil || !strings.Contains(out, "2 older runs expired") {
		d.t.Errorf("status: %v\n%s", err, out)
	}
}
