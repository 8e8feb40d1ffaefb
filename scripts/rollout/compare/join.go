package compare

import (
	"bufio"
	"cmp"
	"container/heap"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"slices"

	"rollout/shared/fault"
)

// parts is how many files the rows of a run are divided into. One of them is in memory at
// once: a 128th of the run.
const parts = 128

// join matches what is left of both runs by ids, in any order. It writes temporary files
// into the folder.
func (m *matcher) join(folder string) error {
	for _, s := range []struct {
		name string
		side *side
	}{{"a", &m.a}, {"b", &m.b}} {
		if err := divide(s.side, folder, s.name); err != nil {
			return err
		}
	}
	for n := range parts {
		if err := joinPart(folder, n); err != nil {
			return err
		}
	}
	return mergeParts(folder, m.each)
}

func partPath(folder, name string, n int) string {
	return filepath.Join(folder, fmt.Sprintf("%s-%d", name, n))
}

// divide writes the rest of a run into files, by the hash of the ids.
func divide(s *side, folder, name string) (err error) {
	files := make([]*values[Row], parts)
	defer func() {
		for _, f := range files {
			if f != nil {
				err = errors.Join(err, f.close())
			}
		}
	}()
	for n := range files {
		if files[n], err = createValues[Row](partPath(folder, name, n)); err != nil {
			return err
		}
	}
	for ; s.head != nil; err = s.advance() {
		if err != nil {
			return err
		}
		h := fnv.New32a()
		_, _ = io.WriteString(h, s.head.ID) // a hash takes all
		if err := files[h.Sum32()%parts].write(*s.head); err != nil {
			return err
		}
	}
	return err
}

// joinPart matches the rows of one part, and writes its pairs in their order.
func joinPart(folder string, n int) (err error) {
	as, err := readValues[Row](partPath(folder, "a", n))
	if err != nil {
		return err
	}
	bs, err := readValues[Row](partPath(folder, "b", n))
	if err != nil {
		return err
	}
	byID := make(map[string]*Row, len(bs))
	for i := range bs {
		if matchable(bs[i]) {
			byID[bs[i].ID] = &bs[i]
		}
	}
	var pairs []Pair
	matched := map[*Row]bool{}
	for i := range as {
		var b *Row
		if matchable(as[i]) {
			b = byID[as[i].ID]
			matched[b] = true
		}
		pairs = append(pairs, pairOf(&as[i], b))
	}
	for i := range bs {
		if !matched[&bs[i]] {
			pairs = append(pairs, pairOf(nil, &bs[i]))
		}
	}
	slices.SortFunc(pairs, comparePlaces)
	out, err := createValues[Pair](partPath(folder, "pairs", n))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.close()) }()
	for _, p := range pairs {
		if err := out.write(p); err != nil {
			return err
		}
	}
	return nil
}

// comparePlaces orders pairs by the first run's items, and then those of the second alone.
func comparePlaces(p, q Pair) int {
	switch {
	case p.A != nil && q.A != nil:
		return cmp.Compare(p.A.Item, q.A.Item)
	case p.A != nil:
		return -1
	case q.A != nil:
		return 1
	}
	return cmp.Compare(p.B.Item, q.B.Item)
}

// mergeParts calls each for the pairs of all parts, in their order.
func mergeParts(folder string, each func(Pair) error) (err error) {
	var open pairHeap
	defer func() {
		for _, f := range open {
			err = errors.Join(err, f.file.Close())
		}
	}()
	for n := range parts {
		f, err := os.Open(partPath(folder, "pairs", n))
		if err != nil {
			return fault.WithKind(fault.Unavailable, err, "read a temporary file")
		}
		p := &pairFile{file: f, decoder: json.NewDecoder(bufio.NewReader(f))}
		more, err := p.advance()
		if err != nil || !more {
			if err := errors.Join(err, f.Close()); err != nil {
				return err
			}
			continue
		}
		open = append(open, p)
	}
	heap.Init(&open)
	for len(open) > 0 {
		first := open[0]
		if err := each(first.head); err != nil {
			return err
		}
		more, err := first.advance()
		if err != nil {
			return err
		}
		if more {
			heap.Fix(&open, 0)
			continue
		}
		heap.Pop(&open)
		if err := first.file.Close(); err != nil {
			return err
		}
	}
	return nil
}

// pairFile is the file of a part's pairs, and its first pair that is left.
type pairFile struct {
	file    *os.File
	decoder *json.Decoder
	head    Pair
}

// advance reads the next pair. It returns false after the last.
func (f *pairFile) advance() (bool, error) {
	f.head = Pair{}
	err := f.decoder.Decode(&f.head)
	if err == io.EOF {
		return false, nil
	}
	return err == nil, fault.WithKind(fault.Unavailable, err, "read a temporary file")
}

// pairHeap is a heap of files by their heads.
type pairHeap []*pairFile

func (h pairHeap) Len() int           { return len(h) }
func (h pairHeap) Less(i, k int) bool { return comparePlaces(h[i].head, h[k].head) < 0 }
func (h pairHeap) Swap(i, k int)      { h[i], h[k] = h[k], h[i] }

// Push implements heap.Interface.
func (h *pairHeap) Push(x any) { *h = append(*h, x.(*pairFile)) }

// Pop implements heap.Interface.
func (h *pairHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// values writes JSON values into a new file.
type values[T any] struct {
	file   *os.File
	buffer *bufio.Writer
	enc    *json.Encoder
}

func createValues[T any](path string) (*values[T], error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fault.WithKind(fault.Exhausted, err, "write a temporary file")
	}
	b := bufio.NewWriter(f)
	return &values[T]{f, b, json.NewEncoder(b)}, nil
}

func (v *values[T]) write(x T) error {
	return fault.WithKind(fault.Exhausted, v.enc.Encode(x), "write a temporary file")
}

func (v *values[T]) close() error {
	return fault.WithKind(fault.Exhausted, errors.Join(v.buffer.Flush(), v.file.Close()), "write a temporary file")
}

// readValues reads all values of a file.
func readValues[T any](path string) (out []T, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fault.WithKind(fault.Unavailable, err, "read a temporary file")
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for d := json.NewDecoder(bufio.NewReader(f)); ; {
		var x T
		switch err := d.Decode(&x); {
		case err == io.EOF:
			return out, nil
		case err != nil:
			return nil, fault.WithKind(fault.Unavailable, err, "read a temporary file")
		}
		out = append(out, x)
	}
}
