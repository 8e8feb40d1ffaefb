package input_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"rollout/shared/blob"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

const run = inputtest.RunID

func TestFindShardAmongManyRanges(t *testing.T) {
	t.Parallel()
	p := hosttest.New()
	var files []string
	for n := range 9 { // of 0 to 8 prompts; an empty file has no range
		files = append(files, inputtest.Prompts(100*n, n))
	}
	m := inputtest.Plan(t, p, inputtest.Manifest(2), files...)
	x := input.NewIndex(p.Blobs, p.Docs)
	shard, item := 0, uint64(0)
	for n := range 9 {
		for first := 0; first < n; first += 2 {
			e, row, err := x.FindShard(t.Context(), run, shard)
			if err != nil || e.Input != n || row != first/2 {
				t.Fatalf("shard %d: input %d, row %d, %v; want input %d, row %d", shard, e.Input, row, err, n, first/2)
			}
			s, err := x.LoadShard(t.Context(), m, e.Range, row)
			if err != nil || s.FirstItem != item || len(s.Lines) != min(2, n-first) {
				t.Fatalf("shard %d: first item %d, %d lines, %v", shard, s.FirstItem, len(s.Lines), err)
			}
			l := s.Lines[0]
			want := fmt.Sprintf(`{"prompt":"%d"}`, 100*n+first)
			place := dialect.Place{Item: item, File: m.Inputs[n].Key, Line: uint64(first + 1)}
			if string(l.Bytes) != want || l.Place != place {
				t.Errorf("shard %d begins with %s at %+v, want %s", shard, l.Bytes, l.Place, want)
			}
			item += uint64(len(s.Lines))
			shard++
		}
	}
	for _, beyond := range []int{shard, shard + 1000, -1} {
		if _, _, err := x.FindShard(t.Context(), run, beyond); err == nil {
			t.Errorf("shard %d of %d is found", beyond, shard)
		}
	}
}

func TestPlanIsReadAgainWithoutChangingEarlierResults(t *testing.T) {
	t.Parallel()
	p := hosttest.New()
	m := inputtest.Plan(t, p, inputtest.Manifest(1), inputtest.Prompts(0, 1), inputtest.Prompts(0, 1))
	whole := hosttest.Load[record.Plan](t, p, record.PlanKey(run))
	part := whole
	part.Merged, part.Shards, part.Items, part.Problem = 1, 1, 1, "the input is gone"
	hosttest.Save(t, p, record.PlanKey(run), part)
	x := input.NewIndex(p.Blobs, p.Docs)
	old, err := x.Plan(t.Context(), run, 1, 0)
	if err != nil || old.Problem == "" {
		t.Fatal(old, err)
	}
	if _, _, err := x.FindShard(t.Context(), run, 1); !fault.Is(err, fault.NotFound) {
		t.Errorf("a shard that is not planned yet: %v", err)
	}
	hosttest.Save(t, p, record.PlanKey(run), whole)
	var all sync.WaitGroup
	for range 4 { // for the race detector
		all.Go(func() {
			if _, err := x.LoadShard(t.Context(), m, 1, 0); err != nil {
				t.Error(err)
			}
			if old.Ranges[1].Key != "prompts/1.jsonl" {
				t.Error(old.Ranges)
			}
		})
	}
	all.Wait()
	if now, err := x.Plan(t.Context(), run, 2, 0); err != nil || now.Problem != "" {
		t.Errorf("the plan is %+v, %v", now, err)
	}
}

func TestImmutableObjectsAreReadOnce(t *testing.T) {
	t.Parallel()
	p := hosttest.New()
	bucket := &counting{Store: p.Blobs}
	m := inputtest.Plan(t, p, inputtest.Manifest(1), inputtest.Prompts(0, 2))
	x := input.NewIndex(bucket, p.Docs)
	for range 3 {
		if _, err := x.LoadShard(t.Context(), m, 0, 1); err != nil {
			t.Fatal(err)
		}
	}
	if n := bucket.gets; n != 2+3 {
		t.Errorf("%d reads for three loads of a shard, want one of the entry, one of the page and three of the lines", n)
	}
}

// counting counts calls of Get.
type counting struct {
	blob.Store
	gets int
}

func (c *counting) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	c.gets++
	return c.Store.Get(ctx, key, o)
}

func TestLoadShardAcceptsOnlyThePlannedBytes(t *testing.T) {
	t.Parallel()
	const file = "{\"prompt\":\"1\"}\n\n{\"prompt\":\"2\"}\n"
	del := func(key string) func(host.Ports, *record.Manifest) {
		return func(p host.Ports, _ *record.Manifest) { _ = p.Blobs.Delete(t.Context(), key, "") }
	}
	put := func(key, content string) func(host.Ports, *record.Manifest) {
		return func(p host.Ports, _ *record.Manifest) { hosttest.Put(t, p, key, content) }
	}
	swapped := func(content string) func(host.Ports, *record.Manifest) {
		return func(p host.Ports, _ *record.Manifest) { swap(t, p, content) }
	}
	for name, c := range map[string]struct {
		change func(host.Ports, *record.Manifest)
		kind   fault.Kind
		class  fault.Class
	}{
		"input is missing": {del("prompts/0.jsonl"), fault.NotFound, ""},
		"another version of other bytes": {put("prompts/0.jsonl", strings.Replace(file, "2", "3", 1)),
			fault.Corrupt, fault.InputChanged},
		"another version, cut short": {put("prompts/0.jsonl", file[:20]), fault.Corrupt, fault.InputChanged},
		"one byte differs under the same version": {
			swapped(strings.Replace(file, "2", "3", 1)), fault.Corrupt, fault.InputChanged},
		"a line is missing": {swapped("{\"prompt\":\"1\"}\n\n"), fault.Corrupt, fault.InputChanged},
		"a blank line became an item": {
			swapped("{\"prompt\":\"1\"}\n{}\n{\"prompt\":\"2\"}\n"), fault.Corrupt, fault.InputChanged},
		"shard table is truncated": {put(record.ShardTableKey(run, 0), ""), fault.Corrupt, ""},
		"index is missing":         {del(record.IndexKey(run, 0)), fault.NotFound, ""},
		"index has a newer schema": {put(record.IndexKey(run, 0), `{"schema":99}`), fault.Invalid, ""},
		"manifest lacks the input": {func(_ host.Ports, m *record.Manifest) { m.Inputs = nil }, fault.Corrupt, ""},
	} {
		p := hosttest.New()
		m := inputtest.Plan(t, p, inputtest.Manifest(0), file)
		c.change(p, &m)
		_, err := input.NewIndex(p.Blobs, p.Docs).LoadShard(t.Context(), m, 0, 0)
		if !fault.Is(err, c.kind) || fault.ClassOf(err) != c.class {
			t.Errorf("%s: %v (%s, class %q), want %s, %q",
				name, err, fault.KindOf(err), fault.ClassOf(err), c.kind, c.class)
		}
	}
}

// The digest decides, not the version: a restored input is what was planned.
func TestLoadShardReadsAnotherVersionOfTheSameBytes(t *testing.T) {
	t.Parallel()
	p := hosttest.New()
	m := inputtest.Plan(t, p, inputtest.Manifest(2), inputtest.Prompts(0, 5))
	hosttest.Put(t, p, "prompts/0.jsonl", inputtest.Prompts(0, 5))
	s, err := input.NewIndex(p.Blobs, p.Docs).LoadShard(t.Context(), m, 0, 1)
	if err != nil || len(s.Lines) != 2 || string(s.Lines[0].Bytes) != `{"prompt":"2"}` {
		t.Errorf("%+v, %v", s, err)
	}
}

// swap replaces the bytes of the input, and pins the new version in the plan.
func swap(t *testing.T, p host.Ports, content string) {
	t.Helper()
	plan := hosttest.Load[record.Plan](t, p, record.PlanKey(run))
	plan.Ranges[0].Version = hosttest.Put(t, p, "prompts/0.jsonl", content)
	hosttest.Save(t, p, record.PlanKey(run), plan)
}

func TestUnavailableStoreIsNotAMissingInput(t *testing.T) {
	t.Parallel()
	p := hosttest.New()
	away := down{p.Blobs, fault.New(fault.Unavailable, "the bucket is down")}
	_, err := input.OpenPinned(t.Context(), away, "prompts/x.jsonl", blob.GetOptions{Version: "1"})
	if !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
}

// TestBrokenConnectionIsNotAChangedInput breaks every connection with the error
// that HTTP reports for a truncated body.
func TestBrokenConnectionIsNotAChangedInput(t *testing.T) {
	t.Parallel()
	p := hosttest.New()
	m := inputtest.Plan(t, p, inputtest.Manifest(0), inputtest.Prompts(0, 100))
	for _, key := range []string{m.Inputs[0].Key, record.ShardTableKey(run, 0), record.IndexKey(run, 0)} {
		_, err := input.NewIndex(cutOff{p.Blobs, key}, p.Docs).LoadShard(t.Context(), m, 0, 0)
		if !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %v is %s", key, err, fault.KindOf(err))
		}
	}
	key := m.Inputs[0].Key
	if _, err := input.ReadPart(t.Context(), cutOff{p.Blobs, key}, key, 0, 9); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a part: %v is %s", err, fault.KindOf(err))
	}
}

// cutOff is a bucket whose connections break after the fifth byte of one key's
// object.
type cutOff struct {
	blob.Store
	key string
}

func (c cutOff) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	r, info, err := c.Store.Get(ctx, key, o)
	if err == nil && key == c.key {
		broken := iotest.ErrReader(fault.WithKind(fault.Unavailable, io.ErrUnexpectedEOF, "read object %s", key))
		r = io.NopCloser(io.MultiReader(io.LimitReader(r, 5), broken))
	}
	return r, info, err
}

// down is a bucket whose Stat fails.
type down struct {
	blob.Store
	err error
}

func (d down) Stat(context.Context, string, string) (blob.Info, error) { return blob.Info{}, d.err }

func TestPacking(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"a.jsonl": "", "a.jsonl.gz": input.Gzip, "b/a.jsonl.zst": input.Zstd,
		"a.json": "no", "a.gz": "no", "jsonl": "no", "a.JSONL": "no",
	} {
		got, ok := input.Packing(name)
		if ok == (want == "no") || ok && got != want {
			t.Errorf("%s: %q, %v", name, got, ok)
		}
	}
}

func TestUnpack(t *testing.T) {
	t.Parallel()
	gz, zst := pack(t, "hello\n")
	const hugeWindow = "\x28\xb5\x2f\xfd\x00\x98\x01\x00\x00"
	away := fault.New(fault.Unavailable, "the bucket is down")
	for name, c := range map[string]struct {
		packed string
		r      io.Reader
		want   string
		kind   fault.Kind
	}{
		"not packed":               {"", strings.NewReader("x"), "x", 0},
		"gzip":                     {input.Gzip, strings.NewReader(gz), "hello\n", 0},
		"two gzip members":         {input.Gzip, strings.NewReader(gz + gz), "hello\nhello\n", 0},
		"zstd":                     {input.Zstd, strings.NewReader(zst), "hello\n", 0},
		"not gzip":                 {input.Gzip, strings.NewReader("hello"), "", fault.Corrupt},
		"not zstd":                 {input.Zstd, strings.NewReader("hello"), "", fault.Corrupt},
		"truncated gzip":           {input.Gzip, strings.NewReader(gz[:len(gz)-4]), "hello\n", fault.Corrupt},
		"truncated zstd":           {input.Zstd, strings.NewReader(zst[:len(zst)-2]), "", fault.Corrupt},
		"unknown packing":          {"rar", strings.NewReader(""), "", fault.Invalid},
		"a zstd window of 512 MiB": {input.Zstd, strings.NewReader(hugeWindow), "", fault.Corrupt},
		"store fails within a gzip file": {
			input.Gzip, io.MultiReader(strings.NewReader(gz[:12]), broken{away}), "", fault.Unavailable},
		"gzip, store unavailable": {input.Gzip, broken{away}, "", fault.Unavailable},
		"zstd, store unavailable": {input.Zstd, broken{away}, "", fault.Unavailable},
	} {
		var got []byte
		u, err := input.Unpack(c.r, c.packed)
		if err == nil {
			got, err = io.ReadAll(u)
			u.Close()
		}
		ok := err == nil && c.kind == 0 && string(got) == c.want || c.kind != 0 && fault.Is(err, c.kind)
		if !ok {
			t.Errorf("%s: %q, %v (%s); want %q, %s", name, got, err, fault.KindOf(err), c.want, c.kind)
		}
	}
}

type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

func pack(t *testing.T, s string) (gz, zst string) {
	t.Helper()
	var b strings.Builder
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), string(z.EncodeAll([]byte(s), nil))
}
