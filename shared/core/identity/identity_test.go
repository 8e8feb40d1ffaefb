package identity

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"testing"

	"lukechampine.com/blake3"
	"pgregory.net/rapid"
)

const (
	request = `{"prompt":"Say hi.","temperature":0.7}`
	params  = `{"temperature":0.7,"max_tokens":16}`
)

// TestGolden pins the formulas. Changing a value is a new version of the format.
func TestGolden(t *testing.T) {
	t.Parallel()
	model := Model("Qwen/Qwen2.5-0.5B-Instruct", "7ae557604adf67be50417f59c2c2f167def9a775")
	item := Item(model, []byte(request), []byte(params), 42)
	abc, plain := Content([]byte("abc")), Model("Qwen/Qwen2.5-0.5B-Instruct", "")
	for _, c := range []struct {
		name string
		got  ContentID
		want string
	}{
		// blake3's own test vectors.
		{"content of nothing", Content(nil), "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
		{"content of abc", abc, "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"},
		{"model without revision", plain, "c3cad8891f77b67feae407b5f7855585ce94ce069038a57502b76894033cabdc"},
		{"model with revision", model, "bc0eaae8330af934a36ae5c65c5769b9f1e62e22f46230fb1f70445c505056f5"},
		{"item", item, "cdaf6df55be8a86ce1b7ab42449ca2b850cec5d972b3b1f1949d4e977f89f7a5"},
		{"empty item", Item(ContentID{}, nil, nil, 0), "57a516ff22b0b601f53ae6d952abcc9b9f00bca270a718de4af1f65dd3ac64fe"},
	} {
		if c.got.String() != c.want {
			t.Errorf("%s: %s, want %s", c.name, c.got, c.want)
		}
	}
	aULID := []byte{1, 0x56, 0x3e, 0x3a, 0xb5, 0xd3, 0xd6, 0x76, 0x4c, 0x61, 0xef, 0xb9, 0x93, 0x02, 0xbd, 0x5b}
	for _, c := range []struct{ name, got, want string }{
		{"content key", ContentKey(abc), "cas/64/37/6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"},
		{"upload's run", string(UploadRun("bucket", "prompts/nightly.jsonl", "v1")), "377NNY9T26HD6W8F982TYYXZCG"},
		{"shard key", ShardKey("01JD2ZQ4T5W0M1X9YB7R3K8CVE", 7), "shard/047d018c-01JD2ZQ4T5W0M1X9YB7R3K8CVE-7"},
		{"first digit of a run", string(encodeRun(bytes.Repeat([]byte{0xff}, 16))), "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"},
		{"zero run", string(encodeRun(make([]byte, 16))), "00000000000000000000000000"},
		{"a ULID's encoding", string(encodeRun(aULID)), "01ARZ3NDEKTSV4RRFFQ69G5FAV"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.name, c.got, c.want)
		}
	}
	for _, c := range []struct {
		name      string
		got, want uint32
	}{
		{"seed", Seed(item, 0), 442400683},
		{"seed of decode 1", Seed(item, 1), 390359123},
		{"decode 1 of a named seed", DecodeSeed([]byte("1234"), 1), 1948857649},
		{"decode 2 of a named seed", DecodeSeed([]byte("1234"), 2), 43275072},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.name, c.got, c.want)
		}
	}
	for _, c := range []struct {
		seed, epoch uint64
		want        []int
	}{
		{0, 0, []int{1, 5, 3, 9, 6, 7, 8, 4, 0, 2}},
		{0, 1, []int{6, 2, 8, 9, 1, 5, 4, 3, 7, 0}},
		{7, 0, []int{3, 2, 8, 6, 1, 0, 9, 5, 7, 4}},
	} {
		if got := Order(c.seed, c.epoch, 10); !slices.Equal(got, c.want) {
			t.Errorf("order of seed %d, epoch %d: %v, want %v", c.seed, c.epoch, got, c.want)
		}
	}
}

// TestFormulas compares the ids with the formulas computed over whole buffers.
func TestFormulas(t *testing.T) {
	t.Parallel()
	u64 := func(b []byte, v int) []byte { return binary.LittleEndian.AppendUint64(b, uint64(v)) }
	rapid.Check(t, func(t *rapid.T) {
		model := Content(rapid.SliceOf(rapid.Byte()).Draw(t, "model"))
		piece := rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "request")
		req := bytes.Repeat(piece, rapid.SampledFrom([]int{1, 30, 200}).Draw(t, "times"))
		par := rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "params")
		n := rapid.IntRange(0, 1<<40).Draw(t, "index")

		b := append([]byte{1}, model[:]...)
		b = append(u64(b, len(req)), req...)
		b = append(u64(b, len(par)), par...)
		item := ContentID(blake3.Sum256(u64(b, n)))
		if got := Item(model, req, par, uint64(n)); got != item {
			t.Fatalf("item %s, want %s", got, item)
		}
		if got, want := Content(req), ContentID(blake3.Sum256(req)); got != want {
			t.Fatalf("content %s, want %s", got, want)
		}
		decode := rapid.Uint32().Draw(t, "decode")
		h := blake3.Sum256(binary.LittleEndian.AppendUint32(item[:], decode))
		if got, want := Seed(item, decode), binary.LittleEndian.Uint32(h[:4])&0x7fffffff; got != want {
			t.Fatalf("seed %d, want %d", got, want)
		}
	})
}

// TestItemIDDependsOnEveryPart changes each part of an item, and moves a byte from
// one part to its neighbour: the id must change.
func TestItemIDDependsOnEveryPart(t *testing.T) {
	t.Parallel()
	if ItemSchema != 1 {
		t.Error("the schema has changed: change the golden values as well")
	}
	rapid.Check(t, func(t *rapid.T) {
		model := Content(rapid.SliceOf(rapid.Byte()).Draw(t, "model"))
		req := rapid.SliceOfN(rapid.Byte(), 1, 60).Draw(t, "request")
		par := rapid.SliceOfN(rapid.Byte(), 1, 60).Draw(t, "params")
		n := rapid.Uint64().Draw(t, "index")
		id := Item(model, req, par, n)
		if again := Item(model, req, par, n); again != id {
			t.Fatal("the same item has two ids")
		}
		flip := func(b []byte, name string) []byte {
			b = slices.Clone(b)
			b[rapid.IntRange(0, len(b)-1).Draw(t, name)] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			return b
		}
		for name, other := range map[string]ContentID{
			"model":   Item(ContentID(flip(model[:], "byte of model")), req, par, n),
			"request": Item(model, flip(req, "byte of request"), par, n),
			"params":  Item(model, req, flip(par, "byte of params"), n),
			"index":   Item(model, req, par, n^1<<rapid.IntRange(0, 63).Draw(t, "bit of index")),
			"border":  Item(model, append(slices.Clone(req), par[0]), par[1:], n),
			"schema":  ContentID(blake3.Sum256(append([]byte{ItemSchema + 1}, itemBytes(model, req, par, n)[1:]...))),
		} {
			if other == id {
				t.Fatalf("the id does not depend on the %s", name)
			}
		}
		if ContentID(blake3.Sum256(itemBytes(model, req, par, n))) != id {
			t.Fatal("the schema byte is not first")
		}
	})
}

func itemBytes(model ContentID, req, par []byte, n uint64) []byte {
	b := append([]byte{ItemSchema}, model[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(req)))
	b = append(b, req...)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(par)))
	b = append(b, par...)
	return binary.LittleEndian.AppendUint64(b, n)
}

func TestSeedsDifferAndFitIn31Bits(t *testing.T) {
	t.Parallel()
	seen := map[uint32]bool{}
	for n := range uint64(50) {
		item := Item(ContentID{}, nil, nil, n)
		for k := range uint32(8) {
			s := Seed(item, k)
			if s > 1<<31-1 || seen[s] {
				t.Fatalf("item %d, decode %d: the seed %d is too large or not unique", n, k, s)
			}
			seen[s] = true
		}
	}
}

func TestOrderIsAPermutation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 200).Draw(t, "n")
		order := Order(rapid.Uint64().Draw(t, "seed"), rapid.Uint64().Draw(t, "epoch"), n)
		slices.Sort(order)
		for i, v := range order {
			if i != v {
				t.Fatalf("position %d of %v", i, order)
			}
		}
		if len(order) != n {
			t.Fatalf("%d of %d", len(order), n)
		}
	})
}

func TestParseContentID(t *testing.T) {
	t.Parallel()
	id := Content([]byte("abc"))
	if back, ok := ParseContentID(id.String()); !ok || back != id {
		t.Errorf("%s is read back as %s", id, back)
	}
	for _, in := range []string{
		"", "64", id.String()[1:], id.String() + "0", strings.Repeat("g", 64), strings.Repeat("ü", 32),
	} {
		if _, ok := ParseContentID(in); ok {
			t.Errorf("%q is accepted", in)
		}
	}
}

// TestHasherAcceptsWritesInPieces also checks that Reset discards earlier writes.
func TestHasherAcceptsWritesInPieces(t *testing.T) {
	t.Parallel()
	h := NewHasher()
	rapid.Check(t, func(t *rapid.T) {
		b := bytes.Repeat([]byte{7}, rapid.IntRange(0, 9000).Draw(t, "length"))
		h.Reset()
		for rest := b; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			if w, err := h.Write(rest[:n]); w != n || err != nil {
				t.Fatalf("wrote %d of %d: %v", w, n, err)
			}
			rest = rest[n:]
		}
		if got, want := h.Sum(), ContentID(blake3.Sum256(b)); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	})
}

func TestPooledHashersAreSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	want := Item(ContentID{}, []byte(request), []byte(params), 1)
	content := Content([]byte(request))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if Item(ContentID{}, []byte(request), []byte(params), 1) != want || Content([]byte(request)) != content {
					t.Error("a concurrent call returned another id")
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestHashingDoesNotAllocate(t *testing.T) {
	h := NewHasher()
	par := []byte(params)
	for _, times := range []int{1, 30, 100, 1000} {
		req := bytes.Repeat([]byte(request), times)
		if n := testing.AllocsPerRun(100, func() { h.Item(ContentID{}, req, par, 1) }); n > 0 {
			t.Errorf("%v allocations for an item of %d bytes", n, len(req))
		}
	}
}
