package shardtable_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"lukechampine.com/blake3"
	"pgregory.net/rapid"

	"rollout/shared/jsonl"
	"rollout/shared/shardtable"
)

// cut returns the rows and totals of the lines of r.
func cut(t interface{ Fatalf(string, ...any) }, r io.Reader, in jsonl.Options,
	o shardtable.CutOptions) ([]shardtable.Row, shardtable.Totals) {
	c := shardtable.NewCutter(o)
	s := c.Scanner(r, in)
	var rows []shardtable.Row
	for {
		l, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("Next: %v", err)
		}
		if row, ok := c.Add(l); ok {
			rows = append(rows, row)
		}
	}
	if row, ok := c.Flush(); ok {
		rows = append(rows, row)
	}
	if row, ok := c.Flush(); ok {
		t.Fatalf("a second Flush returns %+v", row)
	}
	return rows, c.Totals()
}

func TestCutter(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 20)
	for _, c := range []struct {
		name, file string
		items      int
		bytes      int64
		want       string // items/lines@offset+length, with ! for a too long line
	}{
		{"C10 empty", "", 2, 100, ""},
		{"C10 only newlines", "\n\n\r\n", 2, 100, ""},
		{"by items", "a\nb\nc\n", 2, 100, "2/2@0+4 1/1@4+2"},
		{"one item a shard", "a\nb\nc", 1, 100, "1/1@0+2 1/1@2+2 1/1@4+1"},
		{"by bytes", "aa\nbb\ncc\n", 9, 6, "2/2@0+6 1/1@6+3"},
		{"line over the byte limit has its own shard", "a\nbbbbbbb\nc\nd\n", 9, 4, "1/1@0+2 1/1@2+8 2/2@10+4"},
		{"C07 blank lines belong to the shard before them", "a\n\n\nb\n\n", 1, 100, "1/3@0+4 1/2@4+3"},
		{"C07 leading blank lines belong to the first", "\n\na\nb", 1, 100, "1/3@0+4 1/1@4+1"},
		{"a BOM belongs to the first", "\xEF\xBB\xBFa\nb\n", 9, 100, "2/2@0+7"},
		{"too long line has its own shard", "a\n" + long + "\nb\n", 9, 100, "1/1@0+2 1/1@2+21! 1/1@23+2"},
		{"two too long lines", long + "\n\n" + long, 9, 100, "1/2@0+22! 1/1@22+20!"},
		{"blank lines before a too long one", "\n\n" + long + "\n", 9, 100, "1/3@0+23!"},
		{"one byte too long", strings.Repeat("y", 11) + "\nb\n", 9, 100, "1/1@0+12! 1/1@12+2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := shardtable.CutOptions{Input: 3, MaxItems: c.items, MaxBytes: c.bytes}
			rows, _ := cut(t, strings.NewReader(c.file), jsonl.Options{MaxLine: 10}, o)
			var got []string
			for _, r := range rows {
				s := fmt.Sprintf("%d/%d@%d+%d", r.Items, r.Lines, r.Offset, r.Length)
				if r.Flags&shardtable.FlagLong != 0 {
					s += "!"
				}
				got = append(got, s)
				if r.Digest != blake3.Sum256([]byte(c.file[r.Offset:r.Offset+r.Length])) || r.Input != 3 {
					t.Errorf("row %s: digest %s, input %d", s, r.Digest, r.Input)
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%q, want %q", strings.Join(got, " "), c.want)
			}
		})
	}
}

func TestCutBytes(t *testing.T) {
	t.Parallel()
	for size, want := range map[int64]int64{
		0: 4 << 10, 1: 4 << 10, 1 << 20: 16 << 10, 64 << 20: 1 << 20, 5 << 30: 1 << 20,
	} {
		if got := shardtable.CutBytes(size); got != want {
			t.Errorf("CutBytes(%d) = %d, want %d", size, got, want)
		}
	}
}

func TestDefaultIs256Items(t *testing.T) {
	t.Parallel()
	rows, _ := cut(t, strings.NewReader(strings.Repeat("a\n", 600)), jsonl.Options{}, shardtable.CutOptions{})
	if len(rows) != 3 || rows[0].Items != 256 || rows[1].FirstItem != 256 || rows[2].Items != 88 {
		t.Errorf("%+v", rows)
	}
}

// An input of a million lines is cut into some two thousand shards, a larger one into shards of
// 1,024 items or 1 MiB, and a smaller one as without that. Chosen numbers of items stay.
func TestShardsOfLargeInputsHaveMoreItems(t *testing.T) {
	t.Parallel()
	const line = 100
	for _, c := range []struct {
		name         string
		items, lines int // lines is how many such lines the whole input has
		line         int // bytes
		want         int // items of the first shard
	}{
		{"few lines", 0, 100_000, line, 256},
		{"half a million", 0, 512 * 1024, line, 256},
		{"a million", 0, 1 << 20, line, 512},
		{"four million", 0, 4 << 20, line, 1024},
		{"a million long ones", 0, 1 << 20, 2048, 512},
		{"four million long ones", 0, 4 << 20, 2048, 512}, // 1 MiB
		{"longer ones", 0, 4 << 20, 8192, 128},            // 1 MiB
		{"chosen", 300, 4 << 20, line, 300},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			first := strings.Repeat(strings.Repeat("a", c.line-1)+"\n", 1100)
			o := shardtable.CutObject(c.items, int64(c.lines)*int64(c.line))
			rows, _ := cut(t, strings.NewReader(first), jsonl.Options{}, o)
			if got := int(rows[0].Items); got != c.want {
				t.Errorf("the first shard has %d items, want %d", got, c.want)
			}
		})
	}
}

func TestRangeScanStartsOneByteBeforeTheRange(t *testing.T) {
	t.Parallel()
	if o := shardtable.RangeScanOptions(0); o.Offset != 0 || o.Limit != 64<<20 || o.SkipPartial {
		t.Errorf("range 0: %+v", o)
	}
	if o := shardtable.RangeScanOptions(2); o.Offset != 128<<20-1 || o.Limit != 192<<20 || !o.SkipPartial {
		t.Errorf("range 2: %+v", o)
	}
}

// TestRowsTileTheirRange cuts a file as a whole and in ranges. Rows follow each other,
// digests are of the file's bytes, numbers add up, and both have the same items.
func TestRowsTileTheirRange(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SampledFrom([]string{"a\n", "bc\n", "\n", "\r\n", "d", " \n",
			"0123456789abcdef\n", "0123456789\r\n", "\xEF\xBB\xBF"})
		file := strings.Join(rapid.SliceOfN(piece, 0, 50).Draw(t, "file"), "")
		o := shardtable.CutOptions{MaxItems: rapid.IntRange(1, 5).Draw(t, "items"),
			MaxBytes: rapid.Int64Range(1, 40).Draw(t, "bytes")}
		maxLine := rapid.IntRange(1, 12).Draw(t, "max line")
		want := items(t, file, jsonl.Options{MaxLine: maxLine})
		var got []string
		for start := 0; start < len(file); {
			end := start + rapid.IntRange(1, len(file)).Draw(t, "range")
			in := jsonl.Options{Offset: int64(start), Limit: int64(end), MaxLine: maxLine}
			if start > 0 {
				in.Offset, in.SkipPartial = int64(start-1), true
			}
			rows, totals := cut(t, strings.NewReader(file[in.Offset:]), in, o)
			checkTotals(t, rows, totals)
			got = append(got, checkRows(t, file, maxLine, o, rows)...)
			start = end
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("items %q in ranges, %q as a whole", got, want)
		}
	})
}

// checkRows checks the rows of one range and returns their items.
func checkRows(t *rapid.T, file string, maxLine int, o shardtable.CutOptions, rows []shardtable.Row) (all []string) {
	var table bytes.Buffer
	w := shardtable.NewWriter(&table, shardtable.Header{})
	for i, r := range rows {
		if err := w.Append(r); err != nil { // fails if the row does not follow the one before
			t.Fatalf("row %d: %v", i, err)
		}
		shard := file[r.Offset : r.Offset+r.Length]
		if r.Digest != blake3.Sum256([]byte(shard)) {
			t.Fatalf("row %d: the digest is not of %q", i, shard)
		}
		scan := r.ScanOptions()
		scan.MaxLine = maxLine
		its := items(t, shard, scan)
		if int(r.Items) != len(its) || int(r.Items) > o.MaxItems {
			t.Fatalf("row %d has %d items, %q has %d", i, r.Items, shard, len(its))
		}
		if int64(len(strings.TrimSpace(shard))) > o.MaxBytes && r.Items > 1 {
			t.Fatalf("row %d has %d items in %d bytes", i, r.Items, len(shard))
		}
		all = append(all, its...)
	}
	return all
}

// checkTotals compares the totals of a range with its rows.
func checkTotals(t *rapid.T, rows []shardtable.Row, totals shardtable.Totals) {
	var count, length uint64
	for _, r := range rows {
		count += uint64(r.Items)
		length += r.Length
	}
	if totals.Rows != int64(len(rows)) || totals.Items != count || len(rows) > 0 && totals.Bytes != length {
		t.Fatalf("totals %+v of %d rows, %d items, %d bytes", totals, len(rows), count, length)
	}
	if len(rows) > 0 && (rows[0].FirstItem != 0 || rows[0].FirstLine != 0) {
		t.Fatalf("the first row starts at %+v", rows[0])
	}
}

// items returns the items of s with offset and content.
func items(t *rapid.T, s string, o jsonl.Options) []string {
	var out []string
	for scan := jsonl.NewScanner(strings.NewReader(s), o); ; {
		l, err := scan.Next()
		if err != nil {
			return out
		}
		if !l.Blank {
			out = append(out, fmt.Sprintf("%d:%s:%v", l.Offset, l.Bytes, l.TooLong))
		}
	}
}

func BenchmarkCut(b *testing.B) {
	for _, size := range []int{300, 1180} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			line := append(bytes.Repeat([]byte("x"), size-1), '\n')
			data := bytes.Repeat(line, 16<<20/size)
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				cut(b, bytes.NewReader(data), jsonl.Options{}, shardtable.CutOptions{})
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(data)/size), "ns/line")
		})
	}
}
