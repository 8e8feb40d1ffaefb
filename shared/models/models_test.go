package models_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/fault"
	"rollout/shared/memory"
	"rollout/shared/models"
)

const (
	name    = "acme/small"
	commit  = "0123456789abcdef0123456789abcdef01234567"
	commit2 = "1123456789abcdef0123456789abcdef01234567"
)

// source has files in memory, and counts how often each is opened.
type source struct {
	files map[string][]byte
	mu    sync.Mutex
	opens map[string]int
}

func newSource(files map[string][]byte) *source {
	return &source{files: files, opens: map[string]int{}}
}

func (s *source) Open(_ context.Context, f models.Listed) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opens[f.Path]++
	return io.NopCloser(bytes.NewReader(s.files[f.Path])), nil
}

// listed lists the files, with the digests that a test gives them.
func (s *source) listed(digests map[string]string) (all []models.Listed) {
	for path, b := range s.files {
		all = append(all, models.Listed{Path: path, Size: int64(len(b)), Digest: digests[path]})
	}
	return all
}

// noise returns n bytes that depend on the seed.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	random := rand.NewChaCha8([32]byte{byte(seed)})
	_, _ = random.Read(b) // it never fails
	return b
}

// small is a model of three files: one of two blocks and a bit, one of a few bytes, one empty.
func small() *source {
	return newSource(map[string][]byte{
		"model-1.safetensors": noise(1, 2*models.BlockBytes+1000),
		"sub/config.json":     []byte(`{"layers": 2}`),
		"empty.txt":           {},
	})
}

func newCache() models.Cache { return models.Cache{Blobs: memory.NewBucket(clock.System{})} }

func store(t *testing.T, c models.Cache, commit string, s *source) (models.Manifest, models.Stored) {
	t.Helper()
	m, stored, err := c.Store(t.Context(), name, commit, s.listed(nil), s)
	if err != nil {
		t.Fatal(err)
	}
	return m, stored
}

func openRoot(t *testing.T, at string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

// same checks that the folder has the source's files and nothing else.
func same(t *testing.T, folder string, s *source) {
	t.Helper()
	found := 0
	err := filepath.WalkDir(folder, func(at string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		found++
		below, err := filepath.Rel(folder, at)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(at)
		if want, ok := s.files[filepath.ToSlash(below)]; !ok || !bytes.Equal(b, want) {
			t.Errorf("%s has other bytes than its source", below)
		}
		return err
	})
	if err != nil || found != len(s.files) {
		t.Errorf("the folder has %d files of %d, %v", found, len(s.files), err)
	}
}

func TestFetchBringsWhatWasStored(t *testing.T) {
	t.Parallel()
	c, s, dir := newCache(), small(), t.TempDir()
	var done atomic.Int64
	c.Done = func(n int) { done.Add(int64(n)) }
	m, stored := store(t, c, commit, s)
	if stored.New != m.Size() || stored.Already || done.Load() != m.Size() {
		t.Errorf("stored %+v, %d bytes are told, of %d", stored, done.Load(), m.Size())
	}
	found, err := c.Find(t.Context(), name, commit)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Fetch(t.Context(), found, openRoot(t, dir), "snapshots/x")
	if err != nil || got.Files != 3 || got.Read != m.Size() || got.Kept != 0 || done.Load() != 2*m.Size() {
		t.Errorf("fetched %+v, %v; %d bytes are told", got, err, done.Load())
	}
	same(t, filepath.Join(dir, "snapshots/x"), s)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the folder has more than the model: %v, %v", entries, err)
	}
}

func TestRevisionsShareTheirBlocks(t *testing.T) {
	t.Parallel()
	c, s := newCache(), small()
	store(t, c, commit, s)
	s.files["sub/config.json"] = []byte(`{"layers": 3}`)
	m, stored := store(t, c, commit2, s)
	if stored.New != 13 {
		t.Errorf("%d bytes of %d are new, want those of the config alone", stored.New, m.Size())
	}
	all, err := c.List(t.Context())
	if err != nil || len(all) != 2 || all[0].Revision != commit || all[1].Bytes != m.Size() || all[1].Files != 3 {
		t.Errorf("%+v, %v", all, err)
	}
}

// A source that knows digests, as the hub does, is not read again for a file that an earlier
// store brought, even if that store broke before its end.
func TestFileWithAKnownDigestIsNotReadAgain(t *testing.T) {
	t.Parallel()
	c, s := newCache(), small()
	digests := map[string]string{"model-1.safetensors": strings.Repeat("a", 64)}
	for _, commit := range []string{commit, commit2} {
		if _, _, err := c.Store(t.Context(), name, commit, s.listed(digests), s); err != nil {
			t.Fatal(err)
		}
	}
	if s.opens["model-1.safetensors"] != 1 || s.opens["empty.txt"] != 2 {
		t.Errorf("opened %v", s.opens)
	}
}

// faulty is a bucket in which calls fail after a number of them.
type faulty struct {
	blob.Store
	puts, gets atomic.Int64 // that still succeed
}

var errBroken = fault.New(fault.Denied, "the bucket is closed")

func (f *faulty) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (blob.Info, error) {
	if f.puts.Add(-1) < 0 {
		return blob.Info{}, errBroken
	}
	return f.Store.Put(ctx, key, r, o)
}

func (f *faulty) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	if f.gets.Add(-1) < 0 {
		return nil, blob.Info{}, errBroken
	}
	return f.Store.Get(ctx, key, o)
}

func TestBrokenStoreLeavesNothingThatIsBelieved(t *testing.T) {
	t.Parallel()
	whole, s := newCache(), small()
	for puts := int64(0); ; puts++ {
		b := &faulty{Store: whole.Blobs}
		b.puts.Store(puts)
		b.gets.Store(1000)
		_, stored, err := models.Cache{Blobs: b}.Store(t.Context(), name, commit, s.listed(nil), s)
		if err == nil {
			if puts < 1 || stored.Already {
				t.Errorf("with %d puts: %+v", puts, stored)
			}
			break
		}
		if !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		if _, err := whole.Find(t.Context(), name, commit); !fault.Is(err, fault.NotFound) {
			t.Errorf("after %d puts: %v", puts, err)
		}
	}
}

// What a copy lost, such as by a removal that met a store, the next store brings.
func TestStoreBringsTheBlocksThatACopyLost(t *testing.T) {
	t.Parallel()
	c, s := newCache(), small()
	m, _ := store(t, c, commit, s)
	damage(t, c, m, 1000, nil)
	if _, err := c.FindWhole(t.Context(), name, commit); !fault.Is(err, fault.NotFound) ||
		!strings.Contains(err.Error(), "lacks 1 of the 4 blocks") {
		t.Errorf("a copy that lacks a block: %v", err)
	}
	if _, stored := store(t, c, commit, s); stored.New != 1000 || stored.Already {
		t.Errorf("the copy that lacked a block: %+v", stored)
	}
	if _, stored := store(t, c, commit, s); stored.New != 0 || !stored.Already {
		t.Errorf("the whole copy: %+v", stored)
	}
	dir := t.TempDir()
	if _, err := c.Fetch(t.Context(), m, openRoot(t, dir), "."); err != nil {
		t.Fatal(err)
	}
	same(t, dir, s)
}

// removing is a bucket from which another program removes the blocks that no manifest
// lists, just before the manifest of a store comes.
type removing struct{ blob.Store }

func (r removing) Put(ctx context.Context, key string, b io.Reader, o blob.PutOptions) (blob.Info, error) {
	if key == models.HubKey(name, commit) {
		if _, err := (models.Cache{Blobs: r.Store}).Remove(ctx, nil, time.Now().Add(48*time.Hour)); err != nil {
			return blob.Info{}, err
		}
	}
	return r.Store.Put(ctx, key, b, o)
}

func TestStoreWhoseBlocksWereRemovedMeanwhileIsRepeated(t *testing.T) {
	t.Parallel()
	c, s := newCache(), small()
	_, _, err := models.Cache{Blobs: removing{c.Blobs}}.Store(t.Context(), name, commit, s.listed(nil), s)
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "removed meanwhile") ||
		!strings.Contains(fault.RemedyOf(err), "repeat it") {
		t.Errorf("%v", err)
	}
	if m, stored := store(t, c, commit, s); stored.New != m.Size() || stored.Already {
		t.Errorf("repeated: %+v", stored)
	}
	if _, err := c.FindWhole(t.Context(), name, commit); err != nil {
		t.Error(err)
	}
}

func TestStoresAtOnceAreHarmless(t *testing.T) {
	t.Parallel()
	c, s := newCache(), small()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, _, err := c.Store(t.Context(), name, commit, s.listed(nil), s); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	m, err := c.Find(t.Context(), name, commit)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := c.Fetch(t.Context(), m, openRoot(t, dir), "."); err != nil {
		t.Fatal(err)
	}
	same(t, dir, s)
}

func TestFetchGoesOnWhereItBroke(t *testing.T) {
	t.Parallel()
	c, s, dir := newCache(), small(), t.TempDir()
	m, _ := store(t, c, commit, s)
	b := &faulty{Store: c.Blobs}
	b.gets.Store(2) // of four blocks
	got, err := models.Cache{Blobs: b}.Fetch(t.Context(), m, openRoot(t, dir), ".")
	if !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	again, err := c.Fetch(t.Context(), m, openRoot(t, dir), ".")
	if err != nil || again.Files != 3 || again.Read+again.Kept != m.Size() || again.Kept < got.Read {
		t.Errorf("%+v after %+v, %v", again, got, err)
	}
	same(t, dir, s)
	third, err := c.Fetch(t.Context(), m, openRoot(t, dir), ".")
	if err != nil || third.Read != 0 || third.Kept != m.Size() {
		t.Errorf("%+v when all is there, %v", third, err)
	}
}

// A failure of the power may leave a file with its name and size and without its bytes.
func TestFetchRepairsAFileWithHoles(t *testing.T) {
	t.Parallel()
	c, s, dir := newCache(), small(), t.TempDir()
	m, _ := store(t, c, commit, s)
	file := slices.Clone(s.files["model-1.safetensors"])
	clear(file[models.BlockBytes : models.BlockBytes+100])
	if err := os.WriteFile(filepath.Join(dir, "model-1.safetensors"), file, 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := c.Fetch(t.Context(), m, openRoot(t, dir), ".")
	if err != nil || got.Read != models.BlockBytes+13 {
		t.Errorf("%+v, %v", got, err)
	}
	same(t, dir, s)
}

// damage replaces a block by other bytes of its size, or deletes it.
func damage(t *testing.T, c models.Cache, m models.Manifest, size int, b []byte) {
	t.Helper()
	for _, f := range m.Files {
		for i, id := range f.Blocks {
			key := "models/content/" + id[:2] + "/" + id
			if int(min(models.BlockBytes, f.Size-int64(i)*models.BlockBytes)) != size {
				continue
			}
			err := c.Blobs.Delete(t.Context(), key, "")
			if err == nil && b != nil {
				_, err = c.Blobs.Put(t.Context(), key, bytes.NewReader(b), blob.PutOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("no block has that size")
}

func TestFetchNamesNoFileWithDamagedBlocks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		bytes  []byte
		want   fault.Kind
		remedy string
	}{
		{"other bytes", noise(9, 1000), fault.Corrupt, "cache it again"},
		{"another size", noise(9, 10), fault.Corrupt, ""},
		{"absent", nil, fault.NotFound, "cache the model again"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cache, s, dir := newCache(), small(), t.TempDir()
			m, _ := store(t, cache, commit, s)
			damage(t, cache, m, 1000, c.bytes)
			root := openRoot(t, dir)
			_, err := cache.Fetch(t.Context(), m, root, ".")
			if !fault.Is(err, c.want) || !strings.Contains(fault.RemedyOf(err), c.remedy) {
				t.Errorf("%v, want %s", err, c.want)
			}
			if _, err := os.Stat(filepath.Join(dir, "model-1.safetensors")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the damaged file has its name: %v", err)
			}
			if err := models.RemoveParts(root); err != nil {
				t.Fatal(err)
			}
			if found, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(found) > 0 {
				t.Errorf("%v is left over, %v", found, err)
			}
		})
	}
}

func TestStoreRefusesAFileThatIsNotAsItsSourceTold(t *testing.T) {
	t.Parallel()
	for change, n := range map[string]int64{"shorter": 1, "longer": -1} {
		c, s := newCache(), small()
		files := s.listed(nil)
		for i := range files {
			if files[i].Path == "sub/config.json" {
				files[i].Size += n
			}
		}
		_, _, err := c.Store(t.Context(), name, commit, files, s)
		if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), "sub/config.json") {
			t.Errorf("%s: %v", change, err)
		}
		if _, err := c.Find(t.Context(), name, commit); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: a manifest was written: %v", change, err)
		}
	}
}

func TestStoreRefusesPathsThatLeadOut(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"../x", "/etc/passwd", "a/../../x", "", ".", "a//b", "a\\..\\x", "a\nb", "c:x",
		".rollout-parts/0", strings.Repeat("a", 2000), "sub/config.json/x"} {
		s := small()
		s.files[path] = []byte("x")
		if _, _, err := newCache().Store(t.Context(), name, commit, s.listed(nil), s); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", path, err)
		}
		if len(s.opens) > 0 {
			t.Errorf("%q: the source was read", path)
		}
	}
}

// Whoever may create objects below models/ could write such a manifest.
func TestHostileManifestIsRefused(t *testing.T) {
	t.Parallel()
	block := strings.Repeat("0", 64)
	file := `{"path":"a","size":1,"blocks":["` + block + `"]}`
	for what, text := range map[string]string{
		"no JSON":             `{`,
		"another version":     `{"schema_version":2,"name":"acme/small","revision":"` + commit + `","files":[` + file + `]}`,
		"no files":            `{"schema_version":1,"name":"acme/small","revision":"` + commit + `"}`,
		"of another model":    `{"schema_version":1,"name":"acme/other","revision":"` + commit + `","files":[` + file + `]}`,
		"of another revision": `{"schema_version":1,"name":"acme/small","revision":"` + commit2 + `","files":[` + file + `]}`,
		"a path out": `{"schema_version":1,"name":"acme/small","revision":"` + commit + `","files":[` +
			strings.Replace(file, `"a"`, `"../a"`, 1) + `]}`,
		"a file twice": `{"schema_version":1,"name":"acme/small","revision":"` + commit + `","files":[` + file + `,` +
			file + `]}`,
		"too few blocks": `{"schema_version":1,"name":"acme/small","revision":"` + commit + `","files":[` +
			strings.Replace(file, `:1`, `:99999999`, 1) + `]}`,
		"a negative size": `{"schema_version":1,"name":"acme/small","revision":"` + commit + `","files":[` +
			strings.Replace(file, `:1`, `:-1`, 1) + `]}`,
		"a block that is a path": `{"schema_version":1,"name":"acme/small","revision":"` + commit + `","files":[` +
			strings.Replace(file, block, "../../prompts/x", 1) + `]}`,
	} {
		c := newCache()
		key := models.HubKey(name, commit)
		if _, err := c.Blobs.Put(t.Context(), key, strings.NewReader(text), blob.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Find(t.Context(), name, commit); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %v", what, err)
		}
		if all, err := c.List(t.Context()); err != nil || len(all) != 1 || all[0].Problem == "" {
			t.Errorf("%s: listed as %+v, %v", what, all, err)
		}
	}
}

func TestFetchFollowsNoLinkOutOfItsFolder(t *testing.T) {
	t.Parallel()
	c, s, dir, outside := newCache(), small(), t.TempDir(), t.TempDir()
	m, _ := store(t, c, commit, s)
	if err := os.Symlink(outside, filepath.Join(dir, "sub")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(outside, "x"), filepath.Join(dir, "empty.txt")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Fetch(t.Context(), m, openRoot(t, dir), "."); err == nil {
		t.Error("the folder sub leads out, and nothing says so")
	}
	if found, err := os.ReadDir(outside); err != nil || len(found) > 0 {
		t.Errorf("written outside: %v, %v", found, err)
	}
}

func TestModelOfAFolderIsNamedByItsContent(t *testing.T) {
	t.Parallel()
	c, dir := newCache(), t.TempDir()
	for path, text := range map[string]string{"config.json": "{}", "sub/a.bin": "abc", ".git/config": "x"} {
		at := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	keys := map[string]bool{}
	for range 2 {
		folder, err := models.OpenFolder(dir)
		if err != nil {
			t.Fatal(err)
		}
		files, err := folder.List()
		if err != nil || len(files) != 2 {
			t.Fatalf("%+v, %v", files, err)
		}
		_, stored, err := c.Store(t.Context(), "mine", "", files, folder)
		if err != nil {
			t.Fatal(err)
		}
		keys[stored.Key] = true
		if err := folder.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for key := range keys {
		m, err := c.FindOwn(t.Context(), key)
		if len(keys) != 1 || !models.IsOwnKey(key) || err != nil || m.Name != "mine" || m.Size() != 5 {
			t.Errorf("%v: %+v, %v", keys, m, err)
		}
	}
	for _, key := range []string{"models/own/../x.json", "prompts/x.json", "models/hub/a/b.json"} {
		if _, err := c.FindOwn(t.Context(), key); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// Hugging Face's programs keep a revision as links to a folder beside it.
func TestFolderFollowsLinksWithinAModelAlone(t *testing.T) {
	t.Parallel()
	model := filepath.Join(t.TempDir(), "models--acme--small")
	snapshot, blobs := filepath.Join(model, "snapshots", commit), filepath.Join(model, "blobs")
	for _, dir := range []string{snapshot, blobs} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(blobs, "b"), []byte("abc"), 0o644); err != nil {
		t.Fatal(err)
	}
	link := func(name, to string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(snapshot, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("a.bin", "../../blobs/b")
	folder, err := models.OpenFolder(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if files, err := folder.List(); err != nil || len(files) != 1 || files[0] != (models.Listed{Path: "a.bin", Size: 3}) {
		t.Errorf("%+v, %v", files, err)
	}
	link("shadow", "../../../../etc/shadow")
	if _, err := folder.List(); !fault.Is(err, fault.Invalid) {
		t.Errorf("a link that leads out: %v", err)
	}
}

func TestRemoveKeepsWhatOthersUse(t *testing.T) {
	t.Parallel()
	c, s := newCache(), small()
	_, first := store(t, c, commit, s)
	s.files["sub/config.json"] = []byte(`{"layers": 3}`)
	_, second := store(t, c, commit2, s)
	dead := strings.Repeat("d", 64)
	if _, err := c.Blobs.Put(t.Context(), "models/content/dd/"+dead, strings.NewReader("left over"),
		blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	r, err := c.Remove(t.Context(), []string{first.Key}, time.Now())
	if err != nil || r != (models.Removed{Models: 1, Blocks: 1, Bytes: 13}) {
		t.Errorf("%+v, %v", r, err)
	}
	m, err := c.Find(t.Context(), name, commit2)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := c.Fetch(t.Context(), m, openRoot(t, dir), "."); err != nil {
		t.Error(err)
	}
	same(t, dir, s)
	if r, err := c.Remove(t.Context(), []string{second.Key}, time.Now().Add(48*time.Hour)); err != nil || r.Blocks != 5 {
		t.Errorf("%+v when the last one goes, %v", r, err)
	}
	if left, err := c.Blobs.List(t.Context(), "models/content/", "", 10); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}
