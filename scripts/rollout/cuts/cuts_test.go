package cuts_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/scripts/rollout/cuts"
	"rollout/shared/config"
	"rollout/shared/jsonl"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// planned cuts a file as planning does: each range on its own, from a reader that begins there.
func planned(t *testing.T, content []byte, c config.Run) (out []cuts.Range, shards []int) {
	t.Helper()
	size := int64(len(content))
	for i := range int64(record.RangeCount(size)) {
		scan := shardtable.RangeScanOptions(i)
		cutter := shardtable.NewCutter(shardtable.CutObject(c.Shard.Items, size))
		lines := cutter.Scanner(bytes.NewReader(content[scan.Offset:]), scan)
		r := cuts.Range{Offset: i * record.RangeSize, End: min((i+1)*record.RangeSize, size)}
		take := func(row shardtable.Row, ok bool) {
			if ok {
				r.Shards, r.Items = r.Shards+1, r.Items+uint64(row.Items)
				shards = append(shards, int(row.Items))
			}
		}
		for {
			l, err := lines.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			take(cutter.Add(l))
		}
		take(cutter.Flush())
		out = append(out, r)
	}
	return out, shards
}

// TestAFileIsCutAsPlanningCutsIt compares the cuts of one pass with those of planning, which reads each range on its
// own.
func TestAFileIsCutAsPlanningCutsIt(t *testing.T) {
	t.Parallel()
	line := func(n int) string { return `{"prompt":"` + strings.Repeat("x", n) + "\"}\n" }
	small := config.DefaultRun()
	small.Shard.Items = 3
	for name, c := range map[string]struct {
		content string
		config  config.Run
	}{
		"no line":           {"", config.DefaultRun()},
		"one line":          {line(5), config.DefaultRun()},
		"without a last LF": {line(5) + `{"prompt":"y"}`, config.DefaultRun()},
		"blank lines":       {"\n\n" + line(5) + "\n" + line(6) + " \r\n", small},
		"a byte order mark": {"\xef\xbb\xbf" + strings.Repeat(line(20), 10), small},
		"by items":          {strings.Repeat(line(9), 1000), small},
		"by bytes":          {strings.Repeat(line(900), 1000), config.DefaultRun()},
		"two ranges":        {strings.Repeat(line(700_000), 110), config.DefaultRun()},
		"a line that is too long over a border": {
			strings.Repeat(line(700_000), 80) + line(jsonl.MaxLine+9) + strings.Repeat(line(10), 50), config.DefaultRun()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			plain := filepath.Join(folder, "x.jsonl")
			if err := os.WriteFile(plain, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := cuts.OfFile(t.Context(), plain, c.config)
			if err != nil {
				t.Fatal(err)
			}
			ranges, shards := planned(t, []byte(c.content), c.config)
			if diff := cmp.Diff(append([]cuts.Range{}, ranges...), got.Ranges); diff != "" {
				t.Errorf("the ranges differ: %s", diff)
			}
			if len(shards) > 0 && (got.LeastItems != slices.Min(shards) || got.MostItems != slices.Max(shards)) ||
				got.Shards != len(shards) {
				t.Errorf("%+v, want the shards %v", got, shards)
			}
			if len(c.content) > 1<<20 {
				return
			}
			var packed bytes.Buffer
			z := gzip.NewWriter(&packed)
			if _, err := z.Write([]byte(c.content)); err != nil || z.Close() != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(plain+".gz", packed.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			again, err := cuts.OfFile(t.Context(), plain+".gz", c.config)
			if err != nil || again.Inputs[0].Unpacked != int64(len(c.content)) || again.Inputs[0].Size != int64(packed.Len()) {
				t.Errorf("packed: %+v, %v", again.Inputs, err)
			}
			if diff := cmp.Diff(got.Ranges, again.Ranges); diff != "" {
				t.Errorf("a packed file is cut otherwise: %s", diff)
			}
		})
	}
}

func TestAFileThatUnpacksToTooMuchIsRefused(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(make([]byte, 5000)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.jsonl.gz")
	if err := os.WriteFile(path, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	c := config.DefaultRun()
	c.Input.MaxUnpacked = 4999
	if _, err := cuts.OfFile(t.Context(), path, c); err == nil || !strings.Contains(err.Error(), "input.max_unpacked") {
		t.Errorf("the error is %v", err)
	}
}
