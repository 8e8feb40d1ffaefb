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

// quants are the files of a model for llama.cpp.
func quants() map[string][]byte {
	return map[string][]byte{"README.md": []byte("about"), "m-Q4_K_M.gguf": bytes.Repeat([]byte("four"), 1000),
		"m-Q8_0-00001-of-00002.gguf": bytes.Repeat([]byte("eight"), 1000),
		"m-Q8_0-00002-of-00002.gguf": bytes.Repeat([]byte("more"), 1000), "mmproj-F16.gguf": []byte("eyes")}
}

// serveGGUF does what llama.cpp's server does: it loads some of the files.
func (f *fixture) serveGGUF(m computer, files ...string) {
	f.t.Helper()
	all := f.hub.Files
	defer func() { f.hub.Files = all }()
	f.hub.Files = map[string][]byte{}
	for _, file := range files {
		f.hub.Files[file] = all[file]
	}
	f.serve(m)
}

// Each tag of a model is kept by itself, and the default one apart from other servers' files.
func TestLlamaCppReadsTheFilesOfItsTag(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	clear(f.hub.Files)
	for file, b := range quants() {
		f.hub.Files[file] = b
	}
	f.pool.Server = "llama.cpp"
	for _, c := range []struct {
		model, stored string
		files         []string
	}{
		{name + ":q8_0", name + ":Q8_0", []string{"m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"}},
		{name, name + ":GGUF", []string{"m-Q4_K_M.gguf", "mmproj-F16.gguf"}},
		{name + ":Q4_K_M", name + ":Q4_K_M", []string{"m-Q4_K_M.gguf", "mmproj-F16.gguf"}},
	} {
		f.pool.Model = c.model
		first := f.machine()
		if said := first.fetch(t); !strings.Contains(said, "the bucket has no copy of "+c.model) {
			t.Errorf("%s: the first machine says %q", c.model, said)
		}
		f.serveGGUF(first, c.files...)
		if said := first.store(t); !strings.Contains(said, c.model+" is stored in the bucket") {
			t.Errorf("%s: the first machine says %q", c.model, said)
		}
		second := f.machine()
		if said := second.fetch(t); !strings.Contains(said, c.model+" came from the bucket") {
			t.Errorf("%s: the second machine says %q", c.model, said)
		}
		there, err := os.ReadDir(second.dir("snapshots/" + hubtest.Commit))
		if err != nil || len(there) != len(c.files) {
			t.Errorf("%s: the machine has %v, %v", c.model, there, err)
		}
		for _, file := range c.files {
			b, err := os.ReadFile(second.dir("snapshots/" + hubtest.Commit + "/" + file))
			if err != nil || !bytes.Equal(b, f.hub.Files[file]) {
				t.Errorf("%s: %s has %d bytes, %v", c.model, file, len(b), err)
			}
		}
		if ref, err := os.ReadFile(second.dir("refs/main")); err != nil || string(ref) != hubtest.Commit {
			t.Errorf("%s: main is %q, %v", c.model, ref, err)
		}
		if _, err := first.Cache.FindWhole(t.Context(), c.stored, hubtest.Commit); err != nil {
			t.Errorf("%s: %v", c.stored, err)
		}
	}
	if _, err := f.machine().Cache.Find(t.Context(), name, hubtest.Commit); !fault.Is(err, fault.NotFound) {
		t.Errorf("another server finds files of llama.cpp: %v", err)
	}
}

func TestLlamaCppIsLeftOutWhereATagDoesNotTellTheFiles(t *testing.T) {
	t.Parallel()
	const chosen, other = "engine_args or engine_env say which files", "is not a name of the hub"
	arguments := func(words ...string) func(*config.Pool) {
		return func(p *config.Pool) { p.EngineArgs = words }
	}
	variable := func(name, value string) func(*config.Pool) {
		return func(p *config.Pool) { p.EngineEnv = map[string]string{name: value} }
	}
	for what, c := range map[string]struct {
		change func(p *config.Pool)
		says   string
	}{
		"a file":               {arguments("--hf-file=m.gguf"), chosen},
		"a file, in short":     {arguments("-hff", "m.gguf"), chosen},
		"a file in a variable": {variable("LLAMA_ARG_HF_FILE", "m"), chosen},
		"another folder":       {variable("LLAMA_CACHE", "/x"), chosen},
		"a strange tag":        {func(p *config.Pool) { p.Model = name + ":../x" }, other},
		"a tag for vLLM":       {func(p *config.Pool) { p.Server, p.Model = "vllm", name+":Q8_0" }, other},
	} {
		f := newFixture(t)
		f.pool.Server = "llama.cpp"
		c.change(&f.pool)
		m := f.machine()
		if said := m.fetch(t); !strings.Contains(said, c.says) {
			t.Errorf("%s: it says %q", what, said)
		}
		if said := m.store(t); said != "" {
			t.Errorf("%s: it stores: %q", what, said)
		}
	}
}

// The name of the file that the server loads stands in the list of the model's files alone.
func TestModelForLlamaCppThatOnlyTheBucketHas(t *testing.T) {
	t.Parallel()
	for files, want := range map[string]string{
		"m.gguf": "LLAMA_ARG_MODEL=/model/m.gguf\n",
		"m-00002-of-00002.gguf m-00001-of-00002.gguf mmproj.gguf": "LLAMA_ARG_MODEL=/model/m-00001-of-00002.gguf\n" +
			"LLAMA_ARG_MMPROJ=/model/mmproj.gguf\n",
		"config.json": "",
	} {
		f := newFixture(t)
		var all []models.Listed
		for file := range strings.FieldsSeq(files) {
			all = append(all, models.Listed{Path: file, Size: 2})
		}
		_, stored, err := models.Cache{Blobs: f.blob}.Store(t.Context(), "mine", "", all, text("{}"))
		if err != nil {
			t.Fatal(err)
		}
		f.pool.Model, f.pool.Server = "s3://acme/team/"+stored.Key, "llama.cpp"
		m := f.machine()
		variables := filepath.Join(m.Root, "etc/rollout/pool.env")
		if err := os.MkdirAll(filepath.Dir(variables), 0o755); err != nil {
			t.Fatal(err)
		}
		err = m.Fetch(t.Context())
		if (err == nil) != (want != "") || err != nil && !strings.Contains(err.Error(), "the model mine has no .gguf file") {
			t.Errorf("%s: %v", files, err)
		}
		if got, _ := os.ReadFile(variables); string(got) != want { // absent without a file to serve
			t.Errorf("%s: the variables are %q", files, got)
		}
	}
}

// A task's server looks for models in a folder of its image.
func TestModelComesToTheFolderThatATaskNames(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first := f.machine()
	f.serve(first)
	first.store(t)
	second := f.machine()
	second.HubFolder = filepath.Join(f.t.TempDir(), "cache/hub")
	if said := second.fetch(t); !strings.Contains(said, "came from the bucket") {
		t.Errorf("it says %q", said)
	}
	at := filepath.Join(second.HubFolder, "models--acme--small/snapshots", hubtest.Commit, "config.json")
	if b, err := os.ReadFile(at); err != nil || !bytes.Equal(b, f.hub.Files["config.json"]) {
		t.Errorf("%q, %v", b, err)
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
