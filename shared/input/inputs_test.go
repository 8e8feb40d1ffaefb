package input_test

import (
	"fmt"
	"slices"
	"testing"

	"rollout/shared/blob"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

// listed returns the manifest of a run of n inputs, of which more than two are in parts of
// three.
func listed(t *testing.T, p host.Ports, n int) (m record.Manifest, want []record.Input) {
	t.Helper()
	m = inputtest.Manifest(1)
	for i := range n {
		name := fmt.Sprintf("%d.jsonl", i)
		m.Inputs = append(m.Inputs, record.Input{Key: "prompts/" + name, Name: "in/" + name})
	}
	want = slices.Clone(m.Inputs)
	m, err := input.PutList(t.Context(), p.Blobs, m, inputtest.InParts(2, 3))
	if err != nil {
		t.Fatal(err)
	}
	return m, want
}

func TestInputsOfAManifestAndOfPartsReadAlike(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, 3, 4, 6, 7, 30} {
		p := hosttest.New()
		m, want := listed(t, p, n)
		x := input.NewInputs(p.Blobs)
		var got []record.Input
		for in, err := range x.All(t.Context(), m) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, in)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d inputs: %v, want %v", n, got, want)
		}
		for i := range want {
			in, err := x.Input(t.Context(), m, i)
			name, nameErr := x.InputName(t.Context(), m, i)
			if in != want[i] || name != want[i].Name || err != nil || nameErr != nil {
				t.Errorf("input %d of %d: %v, %q, %v, %v", i, n, in, name, err, nameErr)
			}
		}
		for _, i := range []int{-1, n} {
			if _, err := x.Input(t.Context(), m, i); !fault.Is(err, fault.Corrupt) {
				t.Errorf("input %d of %d: %v", i, n, err)
			}
		}
		if name, err := x.InputName(t.Context(), m, n); name != fmt.Sprintf("range %d", n) || err != nil {
			t.Errorf("what is appended to %d inputs is %q, %v", n, name, err)
		}
		objects, err := p.Blobs.List(t.Context(), record.WorkPrefix, "", blob.MaxList)
		if want := map[bool]int{false: 0, true: (n + 2) / 3}[n > 2]; err != nil || len(objects) != want {
			t.Errorf("%d inputs are in %d objects, want %d, %v", n, len(objects), want, err)
		}
	}
}

func TestDamagedListOfInputsIsCorrupt(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(host.Ports, record.Manifest, string){
		"gone":        func(p host.Ports, _ record.Manifest, key string) { del(t, p, key) },
		"other bytes": func(p host.Ports, _ record.Manifest, key string) { hosttest.Put(t, p, key, `{"schema":1}`) },
		"of another part": func(_ host.Ports, m record.Manifest, _ string) {
			m.List.Parts[1].Content = m.List.Parts[0].Content
		},
	} {
		p := hosttest.New()
		m, _ := listed(t, p, 9)
		harm(p, m, record.InputPartKey(m.Run, m.List.Parts[1].Content))
		x := input.NewInputs(p.Blobs)
		if _, err := x.Input(t.Context(), m, 0); err != nil {
			t.Errorf("%s: the part before: %v", name, err)
		}
		if _, err := x.Input(t.Context(), m, 4); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %v", name, err)
		}
		n := 0
		for _, err := range x.All(t.Context(), m) {
			if n++; (err != nil) != (n == 4) || err != nil && !fault.Is(err, fault.Corrupt) {
				t.Errorf("%s: after %d inputs: %v", name, n, err)
			}
		}
	}
}

// What was compared once is not compared again, and other readers keep what they have.
func TestVersionThatWasFoundIsRemembered(t *testing.T) {
	t.Parallel()
	p := hosttest.New()
	ranges := []record.Ranges{{Key: "a", Version: "1"}, {Key: "b", Version: "1"}}
	part := record.SourcePart{Schema: record.Schema, Ranges: ranges}
	hosttest.Put(t, p, record.SourcePartKey(run, 0), string(record.Encode(part)))
	doc := record.Plan{List: &record.SourceList{Count: 2, Parts: []record.SourceListPart{{}}}}
	x := input.NewInputs(p.Blobs)
	x.Remember(run, doc, 1, "2") // not read yet
	for i, want := range []string{"1", "2"} {
		if _, err := x.Source(t.Context(), run, doc, 0); err != nil {
			t.Fatal(err)
		}
		x.Remember(run, doc, 1, "2")
		if src, err := x.Source(t.Context(), run, doc, i); err != nil || src.Version != want {
			t.Errorf("source %d has version %s, want %s, %v", i, src.Version, want, err)
		}
	}
}
