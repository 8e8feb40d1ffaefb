package twoclouds

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"rollout/localstack/aws/fakeaws"
	"rollout/localstack/aws/provision"
	emulators "rollout/localstack/gcp"
	"rollout/localstack/gcp/fakegcs"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
	"rollout/shared/retry"
	"rollout/shared/snapshot"
)

// patience is how long a test waits for what must happen.
const patience = 4 * time.Minute

// betweenClouds runs a test for both directions, each with empty buckets.
func betweenClouds(t *testing.T, test func(t *testing.T, from, to blob.Store)) {
	for _, c := range [][2]string{{"aws", "gcp"}, {"gcp", "aws"}} {
		t.Run("from "+c[0]+" to "+c[1], func(t *testing.T) {
			t.Parallel()
			all := buckets(t)
			test(t, all[c[0]], all[c[1]])
		})
	}
}

// buckets returns a new bucket of each cloud.
func buckets(t *testing.T) map[string]blob.Store {
	t.Helper()
	name := "two-clouds-" + strings.ToLower(rand.Text()[:8])
	d, err := config.ParseDeployment("rollout.toml", []byte("schema_version = 1\n[cloud]\nprovider = \"aws\"\n"+
		"region = \"us-east-1\"\n[cloud.s3]\nbucket = \""+name+"\"\n[[pool]]\nname = \"default\"\nmodel = \"mock\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	address, end, err := fakeaws.StartKumo()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	s, err := fakeaws.OpenInstallation(t.Context(), d, address, "000000000000")
	if err == nil {
		err = provision.Create(t.Context(), s.AWS, d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return map[string]blob.Store{
		"aws": s.Ports.Blobs,
		"gcp": blob.Reliable(emulators.StartStorage(t, fakegcs.Options{}).Blobs(t), retry.Policy{}),
	}
}

// copyAll copies all objects below a prefix, as `gcloud storage rsync` or rclone does.
func copyAll(t *testing.T, from, to blob.Store, prefix string) (n int) {
	t.Helper()
	for after := ""; ; {
		page, err := from.List(t.Context(), prefix, after, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			return n
		}
		for _, o := range page {
			r, _, err := from.Get(t.Context(), o.Key, blob.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = to.Put(t.Context(), o.Key, r, blob.PutOptions{})
			_ = r.Close() // read only
			if err != nil {
				t.Fatal(err)
			}
			after = o.Key
			n++
		}
	}
}

// A snapshot whose content was copied to a bucket of another cloud is restored from there,
// byte for byte, and saving the files there makes the same snapshot.
func TestCopiedSnapshotKeepsItsID(t *testing.T) {
	t.Parallel()
	folder := fstest.MapFS{
		"model.bin":       {Data: []byte(strings.Repeat("weights ", 5000)), Mode: 0o644},
		"state/step.json": {Data: []byte(`{"step": 7}`), Mode: 0o644},
	}
	details := snapshot.Details{Run: identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVA"), Kind: snapshot.TrainState,
		Algorithm: "sft"}
	betweenClouds(t, func(t *testing.T, from, to blob.Store) {
		p := hosttest.New()
		saved, err := snapshot.Store{Blobs: from, Docs: p.Docs, Clock: p.Clock}.Save(t.Context(), folder, details)
		if err != nil {
			t.Fatal(err)
		}
		if n := copyAll(t, from, to, "cas/"); n != 1 {
			t.Fatalf("%d objects were copied, want the snapshot's", n)
		}
		there := snapshot.Store{Blobs: to, Docs: hosttest.New().Docs, Clock: p.Clock}
		restored := filepath.Join(t.TempDir(), "restored")
		if err := there.Restore(t.Context(), saved, restored); err != nil {
			t.Fatal(err)
		}
		for name, file := range folder {
			if got, err := os.ReadFile(filepath.Join(restored, name)); err != nil || string(got) != string(file.Data) {
				t.Errorf("%s has %d bytes, %v", name, len(got), err)
			}
		}
		again, err := there.Save(t.Context(), os.DirFS(restored), details)
		if err != nil || again.ID != saved.ID {
			t.Errorf("saved again it is %s, %v, want %s", again.ID, err, saved.ID)
		}
	})
}

// A run is interrupted on one cloud, and goes on over a copy of the bucket on the other: its
// completions are those of a run that nothing interrupted, byte for byte.
func TestRunGoesOnOverACopyOfItsBucket(t *testing.T) {
	t.Parallel()
	var prompts strings.Builder
	for i := range 600 {
		fmt.Fprintf(&prompts, `{"id":"p-%d","prompt":"Wörter & \"quotes\" %d ✓","tag":%d}`+"\n", i, i, i)
	}
	undisturbed := hosttest.New()
	want := finish(t, undisturbed, upload(t, undisturbed, prompts.String()), "01JD2ZQ4T5W0M1X9YB7R3K8CV0")
	betweenClouds(t, func(t *testing.T, from, to blob.Store) {
		p := hosttest.New() // its documents and messages stand for copies as well
		p.Blobs = from
		id := upload(t, p, prompts.String())
		answer(t, p, id, "01JD2ZQ4T5W0M1X9YB7R3K8CV1", func() bool {
			page, err := p.Blobs.List(t.Context(), record.WorkPrefix+string(id)+"/shards/", "", 1000)
			return err == nil && len(page) >= 8
		})
		if _, err := p.Blobs.Stat(t.Context(), record.OutputKey(id, record.SummaryFile), ""); err == nil {
			t.Fatal("the run ended before it was interrupted")
		}
		copyAll(t, from, to, "")
		p.Blobs = to
		if got := finish(t, p, id, "01JD2ZQ4T5W0M1X9YB7R3K8CV2"); got != want {
			t.Errorf("the completions have %d bytes, want the %d of an undisturbed run", len(got), len(want))
		}
	})
}
