package shardtable_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"rollout/shared/fault"
	"rollout/shared/shardtable"
)

func rows() []shardtable.Row {
	return []shardtable.Row{
		{Input: 1, Offset: 0x0102030405, Length: 0x10, FirstItem: 2, FirstLine: 3, Items: 4, Lines: 5,
			Digest: [32]byte{0xAA, 31: 0xBB}, Group: 6, Chain: 7, Variant: 8, Role: 9},
		{Input: 1, Flags: shardtable.FlagLong, Offset: 0x0102030415, Length: 1,
			FirstItem: 6, FirstLine: 8, Items: 1, Lines: 1},
	}
}

var header = shardtable.Header{Input: 1, Range: 2, Start: 128 << 20, End: 192 << 20, MaxItems: 256, MaxBytes: 1 << 20}

func TestGoldenBytes(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := shardtable.NewWriter(&b, header)
	for _, r := range rows() {
		if err := w.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil || w.Rows() != 2 {
		t.Fatal(err, w.Rows())
	}
	want := strings.Join([]string{
		"524f4c4c435554" + "01" + "60000000" + "00000000" + "01000000" + "02000000",
		"0000000800000000" + "0000000c00000000" + "00010000" + "00001000" + strings.Repeat("00", 16),
		"01000000" + "00000000" + "0504030201000000" + "1000000000000000" + "0200000000000000" + "0300000000000000",
		"04000000" + "05000000" + "aa" + strings.Repeat("00", 30) + "bb" + "06000000" + "07000000" + "08000000" + "09000000",
		"01000000" + "01000000" + "1504030201000000" + "0100000000000000" + "0600000000000000" + "0800000000000000",
		"01000000" + "01000000" + strings.Repeat("00", 48),
	}, "")
	if got := hex.EncodeToString(b.Bytes()); got != want {
		t.Fatalf("the format changed:\n%s, want\n%s", got, want)
	}
	for i := range 2 {
		page := b.Bytes()[shardtable.RowOffset(int64(i)):shardtable.RowOffset(2)]
		got, err := shardtable.Parse(page)
		if err != nil || len(got) != 2-i || got[0] != rows()[i] {
			t.Errorf("rows from %d: %+v, %v", i, got, err)
		}
	}
	if int64(b.Len()) != shardtable.RowOffset(2) {
		t.Errorf("%d bytes, want %d", b.Len(), shardtable.RowOffset(2))
	}
}

func TestHostileRowsAreCorrupt(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(r *shardtable.Row){
		"flags":          func(r *shardtable.Row) { r.Flags = 2 },
		"offset":         func(r *shardtable.Row) { r.Offset = 1 << 63 },
		"length":         func(r *shardtable.Row) { r.Length = 1<<64 - 1 },
		"first item":     func(r *shardtable.Row) { r.FirstItem = 1<<64 - 1; r.FirstLine = 1<<64 - 1 },
		"no items":       func(r *shardtable.Row) { r.Items = 0 },
		"items > lines":  func(r *shardtable.Row) { r.Items = r.Lines + 1 },
		"lines > bytes":  func(r *shardtable.Row) { r.Lines = 1000 },
		"items > before": func(r *shardtable.Row) { r.FirstItem = r.FirstLine + 1 },
		"gap":            func(r *shardtable.Row) { r.Offset++ },
		"lost items":     func(r *shardtable.Row) { r.FirstItem++ },
		"lost lines":     func(r *shardtable.Row) { r.FirstLine++ },
		"another input":  func(r *shardtable.Row) { r.Input++ },
	} {
		rs := rows()
		change(&rs[1])
		if _, err := shardtable.Parse(rs[1].Append(rs[0].Append(nil))); !fault.Is(err, fault.Corrupt) {
			t.Errorf("Parse with %s: %v", name, err)
		}
		w := shardtable.NewWriter(&bytes.Buffer{}, header)
		if err := errors.Join(w.Append(rs[0]), w.Append(rs[1])); err == nil {
			t.Errorf("Append accepts %s", name)
		}
	}
	if _, err := shardtable.Parse(make([]byte, 95)); !fault.Is(err, fault.Corrupt) {
		t.Errorf("half a row: %v", err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, fault.New(fault.Exhausted, "the disk is full") }

func TestWriteErrorsAreReturned(t *testing.T) {
	t.Parallel()
	w := shardtable.NewWriter(full{}, header)
	if err := w.Append(rows()[0]); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); !fault.Is(err, fault.Exhausted) {
		t.Errorf("Flush: %v", err)
	}
	var l shardtable.HashList
	if err := l.Write(full{}); !fault.Is(err, fault.Exhausted) {
		t.Errorf("hashes: %v", err)
	}
	if err := shardtable.NewRepeatWriter(full{}).Flush(); !fault.Is(err, fault.Exhausted) {
		t.Errorf("repeats: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(rows()[1].Append(rows()[0].Append(nil)))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := shardtable.Parse(b)
		if err != nil {
			return
		}
		var again []byte
		for _, r := range got {
			again = r.Append(again)
		}
		if !bytes.Equal(again, b) {
			t.Fatalf("%x is written back as %x", b, again)
		}
	})
}
