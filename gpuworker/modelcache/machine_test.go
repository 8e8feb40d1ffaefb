package modelcache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/hub"
	"rollout/shared/hub/hubtest"
	"rollout/shared/memory"
	"rollout/shared/models"
	"rollout/shared/retry"
)

const name = "acme/small"

// fixture is a hub with a model, a bucket, and machines of a pool.
type fixture struct {
	t    *testing.T
	hub  *hubtest.Hub
	blob blob.Store
	pool config.Pool
}

func newFixture(t *testing.T) *fixture {
	weights := make([]byte, models.BlockBytes+1000)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(weights) // it never fails
	return &fixture{
		t:    t,
		hub:  hubtest.New(t, map[string][]byte{"model.safetensors": weights, "config.json": []byte(`{"layers":2}`)}),
		blob: memory.NewBucket(clock.System{}), pool: config.Pool{Name: "small", Model: name},
	}
}

// computer is a new machine, and what it says.
type computer struct {
	Machine
	out *bytes.Buffer
}

func (f *fixture) machine() computer {
	out := &bytes.Buffer{}
	d := config.Deployment{}
	return computer{Machine{
		Pool: f.pool, Machines: d.MachinesOf(f.pool), Bucket: "s3://acme/team/", Root: f.t.TempDir(),
		Cache: models.Cache{Blobs: f.blob}, Out: out, Now: time.Now,
		Hub: hub.Hub{URL: f.hub.URL, Retry: retry.Policy{Base: time.Microsecond, Max: time.Microsecond}},
	}, out}
}

func (m computer) dir(below string) string {
	return filepath.Join(m.Root, "var/lib/rollout/models/hub/models--acme--small", below)
}

// serve does what a server's own download does: files in blobs/, links to them in
// snapshots/, and the commit in refs/.
func (f *fixture) serve(m computer) {
	f.t.Helper()
	for file, b := range f.hub.Files {
		for at, text := range map[string][]byte{m.dir("blobs/" + file): b, m.dir("refs/main"): []byte(hubtest.Commit)} {
			if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, text, 0o644)); err != nil {
				f.t.Fatal(err)
			}
		}
		link := m.dir("snapshots/" + hubtest.Commit + "/" + file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink("../../blobs/"+file, link)); err != nil {
			f.t.Fatal(err)
		}
	}
}

// fetch fetches and returns what the machine says.
func (m computer) fetch(t *testing.T) string {
	t.Helper()
	m.out.Reset()
	if err := m.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m.out.String()
}

func (m computer) store(t *testing.T) string {
	t.Helper()
	m.out.Reset()
	if err := m.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m.out.String()
}

// has checks that the machine has the model where its server looks for it.
func (f *fixture) has(m computer) {
	f.t.Helper()
	for file, want := range f.hub.Files {
		b, err := os.ReadFile(m.dir("snapshots/" + hubtest.Commit + "/" + file))
		if err != nil || !bytes.Equal(b, want) {
			f.t.Errorf("%s has %d bytes, %v", file, len(b), err)
		}
	}
	if ref, err := os.ReadFile(m.dir("refs/main")); err != nil || string(ref) != hubtest.Commit {
		f.t.Errorf("main is %q, %v", ref, err)
	}
}

func TestSecondMachineReadsWhatTheFirstStored(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first := f.machine()
	if said := first.fetch(t); !strings.Contains(said, "the bucket has no copy of acme/small") {
		t.Errorf("the first machine says %q", said)
	}
	f.serve(first)
	if said := first.store(t); !strings.Contains(said, "acme/small is stored in the bucket: 8.0 MiB") {
		t.Errorf("the first machine says %q", said)
	}
	if said := first.store(t); said != "" {
		t.Errorf("a second time it says %q", said)
	}
	second := f.machine()
	if said := second.fetch(t); !strings.Contains(said, "acme/small came from the bucket: 8.0 MiB in ") {
		t.Errorf("the second machine says %q", said)
	}
	f.has(second)
	if said := second.store(t); said != "" {
		t.Errorf("the second machine has nothing to store: %q", said)
	}
}

// A pinned commit needs no answer of the hub.
func TestPinnedModelComesFromTheBucketWhileTheHubIsDown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first := f.machine()
	f.serve(first)
	first.store(t)
	f.hub.Refuse, f.hub.Refusals = 503, 1000
	if said := f.machine().fetch(t); !strings.Contains(said, "the bucket's models are not used") {
		t.Errorf("without a commit: %q", said)
	}
	f.pool.Revision = hubtest.Commit
	if said := f.machine().fetch(t); !strings.Contains(said, "came from the bucket") {
		t.Errorf("with a commit: %q", said)
	}
}

func TestBrokenCopyFallsBackToTheHub(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		key   func(blob.Info) bool // of the object that is damaged
		bytes string               // "" deletes it
		says  string
	}{
		"a block with other bytes": {isBlock(1000), strings.Repeat("x", 1000),
			"of 2 files came from the bucket, and the server fetches the others from the hub"},
		"a block that is cut": {isBlock(1000), "x", "of 2 files came from the bucket"},
		"a lost block":        {isBlock(1000), "", "of 2 files came from the bucket"},
		"a broken manifest": {func(i blob.Info) bool { return strings.HasSuffix(i.Key, ".json") }, "{",
			"can't be used, so the server fetches it from the hub"},
	} {
		f := newFixture(t)
		first := f.machine()
		f.serve(first)
		first.store(t)
		all, err := f.blob.List(t.Context(), "models/", "", 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range all {
			if !c.key(i) {
				continue
			}
			if err = f.blob.Delete(t.Context(), i.Key, ""); err == nil && c.bytes != "" {
				_, err = f.blob.Put(t.Context(), i.Key, strings.NewReader(c.bytes), blob.PutOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		m := f.machine()
		if said := m.fetch(t); !strings.Contains(said, c.says) {
			t.Errorf("%s: %q", what, said)
		}
		if _, err := os.Stat(m.dir("snapshots/" + hubtest.Commit + "/model.safetensors")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the server finds a damaged file: %v", what, err)
		}
		if _, err := os.Stat(m.dir(".rollout-parts")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: incomplete files take the disk: %v", what, err)
		}
	}
}

func TestMachineStoresTheBlocksThatTheBucketLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first := f.machine()
	f.serve(first)
	first.store(t)
	all, err := f.blob.List(t.Context(), "models/", "", 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if isBlock(1000)(i) {
			err = errors.Join(err, f.blob.Delete(t.Context(), i.Key, ""))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	second := f.machine()
	f.serve(second)
	if said := second.store(t); !strings.Contains(said, "8.0 MiB, of which 1000 B were not there") {
		t.Errorf("the second machine says %q", said)
	}
	third := f.machine()
	if said := third.fetch(t); !strings.Contains(said, "acme/small came from the bucket") {
		t.Errorf("the third machine says %q", said)
	}
	f.has(third)
}

// ordered is a bucket that notes which file of a known digest is the first to be stored.
type ordered struct {
	blob.Store
	first *atomic.Pointer[string]
}

func (o ordered) Put(ctx context.Context, key string, r io.Reader, with blob.PutOptions) (blob.Info, error) {
	if strings.HasPrefix(key, "models/files/") {
		o.first.CompareAndSwap(nil, &key)
	}
	return o.Store.Put(ctx, key, r, with)
}

// Machines that boot together would each read and send all of the model if they went
// through its files in one order. Few files are read at once, so that without a random
// order one of the very first is the first that is stored.
func TestMachinesDoNotStoreInOneOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	clear(f.hub.Files)
	for i := range 60 {
		f.hub.Files[fmt.Sprintf("part-%02d.json", i)] = fmt.Append(nil, i)
	}
	m, firsts := f.machine(), map[string]bool{}
	f.serve(m)
	for range 10 {
		first := &atomic.Pointer[string]{}
		m.Cache.Blobs = ordered{memory.NewBucket(clock.System{}), first}
		if said := m.store(t); !strings.Contains(said, "is stored in the bucket") {
			t.Fatalf("it says %q", said)
		}
		firsts[*first.Load()] = true
	}
	if len(firsts) < 5 {
		t.Errorf("ten machines begin with %d files", len(firsts))
	}
}

func isBlock(size int64) func(blob.Info) bool {
	return func(i blob.Info) bool { return strings.HasPrefix(i.Key, "models/content/") && i.Size == size }
}

// The server's container answers prompts of strangers, and may write its cache.
func TestChangedFilesAreNotStored(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(m computer) error{
		"other bytes": func(m computer) error {
			return os.WriteFile(m.dir("blobs/config.json"), []byte(`{"layers":3}`), 0o644)
		},
		"another size": func(m computer) error { return os.WriteFile(m.dir("blobs/config.json"), []byte(`{}`), 0o644) },
		"a link out of the folder": func(m computer) error {
			at := m.dir("snapshots/" + hubtest.Commit + "/config.json")
			return errors.Join(os.Remove(at), os.Symlink("../../../../../../../etc/rollout/engine.env", at))
		},
		"the model's folder as a link": func(m computer) error {
			out := m.Root + "/elsewhere"
			return errors.Join(os.Rename(m.dir(""), out), os.Symlink(out, m.dir("")))
		},
		"no commit": func(m computer) error { return os.WriteFile(m.dir("refs/main"), []byte("../../x"), 0o644) },
	} {
		f := newFixture(t)
		m := f.machine()
		f.serve(m)
		if err := change(m); err != nil {
			t.Fatal(err)
		}
		if said := m.store(t); !strings.Contains(said, "is not stored in the bucket") {
			t.Errorf("%s: %q", what, said)
		}
		if _, err := m.Cache.Find(t.Context(), name, hubtest.Commit); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestModelThatOnlyTheBucketHas(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, stored, err := models.Cache{Blobs: f.blob}.Store(t.Context(), "mine", "",
		[]models.Listed{{Path: "config.json", Size: 2}}, text("{}"))
	if err != nil {
		t.Fatal(err)
	}
	f.pool.Model = "s3://acme/team/" + stored.Key
	m := f.machine()
	if said := m.fetch(t); !strings.Contains(said, "the model mine came from the bucket") {
		t.Errorf("it says %q", said)
	}
	if b, err := os.ReadFile(filepath.Join(m.Root, "var/lib/rollout/model/config.json")); err != nil || string(b) != "{}" {
		t.Errorf("%q, %v", b, err)
	}
	for _, address := range []string{strings.Replace(f.pool.Model, stored.Key[len(stored.Key)-9:], "0000.json", 1),
		"s3://other/" + stored.Key} {
		f.pool.Model = address
		if err := f.machine().Fetch(t.Context()); err == nil {
			t.Errorf("%s: no error, and no server could start", address)
		}
	}
}

type text string

func (s text) Open(context.Context, models.Listed) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(string(s))), nil
}

func TestLlamaCppIsLeftOut(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.pool.Server = "llama.cpp"
	m := f.machine()
	if said := m.fetch(t); !strings.Contains(said, "llama.cpp keeps models of the hub in a way of its own") {
		t.Errorf("it says %q", said)
	}
	if said := m.store(t); said != "" {
		t.Errorf("it stores: %q", said)
	}
}

func TestTokenIsReadFromTheServersSecrets(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if got := hubToken(root); got != "" {
		t.Errorf("without a file: %q", got)
	}
	at := filepath.Join(root, secretsFile)
	secrets := []byte("A=b\nHF_TOKEN=hf_x\n")
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, secrets, 0o600)); err != nil {
		t.Fatal(err)
	}
	if got := hubToken(root); got != "hf_x" {
		t.Errorf("%q", got)
	}
}
