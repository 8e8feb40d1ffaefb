package shardtable_test

import (
	"bytes"
	"fmt"
	"testing"

	"rollout/shared/shardtable"
)

func TestFindHashInListsOfEveryLength(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, 511, 512, 513, 1024, 1025, 20_000} {
		var l shardtable.HashList
		place := func(i int) shardtable.Place {
			return shardtable.Place{Range: uint32(i % 7), Item: uint32(i), Line: uint32(2 * i)}
		}
		for i := range n {
			l.Add(shardtable.HashID(fmt.Append(nil, "id-", i)), place(i))
		}
		var b bytes.Buffer
		if err := l.Write(&b); err != nil {
			t.Fatal(err)
		}
		reads := 0
		read := func(offset, length int64) ([]byte, error) {
			reads++
			return b.Bytes()[offset : offset+length], nil
		}
		for i := range n {
			p, ok, err := shardtable.FindHash(uint64(n), shardtable.HashID(fmt.Append(nil, "id-", i)), read)
			if err != nil || !ok || p != place(i) {
				t.Fatalf("%d of %d: %+v, %v, %v", i, n, p, ok, err)
			}
		}
		if n > 0 && reads/n > 8 {
			t.Errorf("%d reads for %d entries", reads/n, n)
		}
		for i := range 100 {
			p, ok, err := shardtable.FindHash(uint64(n), shardtable.HashID(fmt.Append(nil, "other-", i)), read)
			if ok || err != nil {
				t.Fatalf("a missing hash in a list of %d: %+v, %v", n, p, err)
			}
		}
	}
}

func TestFindHashReturnsTheFirstOfEqualHashes(t *testing.T) {
	t.Parallel()
	var l shardtable.HashList
	for i := range 3000 { // equal hashes fill several pages
		l.Add(shardtable.HashID(fmt.Append(nil, "id-", i/1500)), shardtable.Place{Item: uint32(i)})
	}
	var b bytes.Buffer
	if err := l.Write(&b); err != nil {
		t.Fatal(err)
	}
	read := func(offset, length int64) ([]byte, error) { return b.Bytes()[offset : offset+length], nil }
	for k := range 2 {
		p, ok, err := shardtable.FindHash(3000, shardtable.HashID(fmt.Append(nil, "id-", k)), read)
		if err != nil || !ok || p.Item != uint32(1500*k) {
			t.Errorf("%+v, %v, %v, want item %d", p, ok, err, 1500*k)
		}
	}
}
