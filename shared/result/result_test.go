package result_test

import (
	"bytes"
	"strings"
	"testing"

	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/memory"
	"rollout/shared/result"
)

var rows = []result.Row{
	{Item: 0, Bytes: []byte("{\"a\":0}\n")},
	{Item: 2, Class: fault.Refused, Bytes: []byte("{\"e\":2}\n")},
	{Item: 3, Bytes: []byte("{\"a\":3}\n")},
}

func TestAppendOrdersOutputsThenErrors(t *testing.T) {
	t.Parallel()
	b, n := result.Append([]byte("before\n"), rows)
	if string(b) != "before\n{\"a\":0}\n{\"a\":3}\n{\"e\":2}\n" || n != 16 {
		t.Errorf("%q, %d bytes of output", b, n)
	}
	if b, n := result.Append(nil, nil); len(b) != 0 || n != 0 {
		t.Errorf("without rows: %q, %d", b, n)
	}
}

func TestCheckpointRoundTrip(t *testing.T) {
	t.Parallel()
	for n := range len(rows) + 1 {
		b, err := result.AppendCheckpoint(nil, rows[:n])
		if err != nil {
			t.Fatal(err)
		}
		got, err := result.ParseCheckpoint(b, 4)
		if err != nil || len(got) != n {
			t.Fatalf("%d rows of %d, %v", len(got), n, err)
		}
		for i, r := range got {
			if r.Item != rows[i].Item || r.Class != rows[i].Class || !bytes.Equal(r.Bytes, rows[i].Bytes) {
				t.Errorf("row %d is %+v", i, r)
			}
		}
	}
}

func TestHostileCheckpointsAreCorrupt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want fault.Kind
	}{
		"empty":                    {"", fault.Corrupt},
		"not JSON":                 {"{\n", fault.Corrupt},
		"newer schema":             {`{"schema":2,"rows":[]}` + "\n", fault.Invalid},
		"item beyond the shard":    {`{"schema":1,"rows":[{"i":4,"n":2}]}` + "\n1\n", fault.Corrupt},
		"negative item":            {`{"schema":1,"rows":[{"i":-1,"n":2}]}` + "\n1\n", fault.Corrupt},
		"one item twice":           {`{"schema":1,"rows":[{"i":1,"n":2},{"i":1,"n":2}]}` + "\n1\n1\n", fault.Corrupt},
		"items out of order":       {`{"schema":1,"rows":[{"i":1,"n":2},{"i":0,"n":2}]}` + "\n1\n1\n", fault.Corrupt},
		"row longer than the rest": {`{"schema":1,"rows":[{"i":0,"n":3}]}` + "\n1\n", fault.Corrupt},
		"empty row":                {`{"schema":1,"rows":[{"i":0,"n":0}]}` + "\n", fault.Corrupt},
		"negative length":          {`{"schema":1,"rows":[{"i":0,"n":-1}]}` + "\n1\n", fault.Corrupt},
		"huge length":              {`{"schema":1,"rows":[{"i":0,"n":9223372036854775807}]}` + "\n1\n", fault.Corrupt},
		"row without a line feed":  {`{"schema":1,"rows":[{"i":0,"n":2}]}` + "\n11", fault.Corrupt},
		"bytes after the rows":     {`{"schema":1,"rows":[]}` + "\n1\n", fault.Corrupt},
	} {
		if _, err := result.ParseCheckpoint([]byte(c.text), 4); !fault.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadCheckpointVerifiesLengthAndDigest(t *testing.T) {
	t.Parallel()
	b, err := result.AppendCheckpoint(nil, rows)
	if err != nil {
		t.Fatal(err)
	}
	good := shard.Ref{Key: "work/x", Length: int64(len(b)), Digest: identity.Content(b).String()}
	for name, c := range map[string]struct {
		object []byte
		edit   func(*shard.Ref)
		want   fault.Kind
	}{
		"as in the document": {b, nil, 0},
		"shorter":            {b[:len(b)-1], nil, fault.Corrupt},
		"longer":             {append(b[:len(b):len(b)], '\n'), nil, fault.Corrupt},
		"other bytes":        {bytes.Replace(b, []byte("3}"), []byte("4}"), 1), nil, fault.Corrupt},
		"missing":            {b, func(r *shard.Ref) { r.Key = "work/y" }, fault.NotFound},
	} {
		bucket := memory.NewBucket(clock.System{})
		if _, err := bucket.Put(t.Context(), "work/x", bytes.NewReader(c.object), blob.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		ref := good
		if c.edit != nil {
			c.edit(&ref)
		}
		got, err := result.ReadCheckpoint(t.Context(), bucket, ref, 4)
		if (err == nil) != (c.want == 0) || c.want != 0 && !fault.Is(err, c.want) || err == nil && len(got) != len(rows) {
			t.Errorf("%s: %d rows, %v", name, len(got), err)
		}
	}
}

func FuzzParseCheckpoint(f *testing.F) {
	b, _ := result.AppendCheckpoint(nil, rows)
	f.Add(b, 4)
	f.Add([]byte(strings.Repeat("{", 100)), 1)
	f.Add([]byte(`{"schema":1,"rows":[{"i":0,"n":2}]}`+"\n1\n"), 1)
	f.Fuzz(func(t *testing.T, b []byte, items int) {
		got, err := result.ParseCheckpoint(b, items)
		if err != nil {
			if k := fault.KindOf(err); k != fault.Corrupt && k != fault.Invalid {
				t.Errorf("%v is %s", err, k)
			}
			return
		}
		last, total := -1, 0
		for _, r := range got {
			if r.Item <= last || r.Item >= items || len(r.Bytes) == 0 || r.Bytes[len(r.Bytes)-1] != '\n' {
				t.Fatalf("row %+v follows item %d of %d", r, last, items)
			}
			last, total = r.Item, total+len(r.Bytes)
		}
		if total > len(b) {
			t.Fatalf("%d bytes of rows out of %d", total, len(b))
		}
		again, err := result.AppendCheckpoint(nil, got)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := result.ParseCheckpoint(again, items); err != nil || len(back) != len(got) {
			t.Fatalf("it cannot be read back: %v", err)
		}
	})
}
