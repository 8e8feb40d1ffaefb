package blobtest

import (
	"io"
	"runtime"
	"testing"

	"rollout/shared/blob"
)

const (
	largeObject = 64 << 20
	// maxRise bounds what a put or get of the large object adds to the live heap:
	// one or two parts fit, the whole object does not.
	maxRise = 40 << 20
)

func testMemory(t *testing.T, open func(t *testing.T) blob.Store) {
	s := open(t)
	before := liveHeap()
	source := &largeReader{}
	if _, err := s.Put(t.Context(), "large", source, blob.PutOptions{CreateOnly: true}); err != nil {
		t.Fatal(err)
	}
	if source.at != largeObject {
		t.Fatalf("Put read %d bytes of %d", source.at, largeObject)
	}
	if rise := int64(source.peak) - int64(before); rise > maxRise {
		t.Errorf("Put of %d MiB holds %d MiB of memory", largeObject>>20, rise>>20)
	}

	before = liveHeap()
	r, info, err := s.Get(t.Context(), "large", blob.GetOptions{})
	if err != nil || info.Size != largeObject {
		t.Fatalf("Get = %+v, %v", info, err)
	}
	defer r.Close()
	buffer, at, peak := make([]byte, 1<<20), int64(0), before
	for {
		n, err := io.ReadFull(r, buffer)
		for i, c := range buffer[:n] {
			if c != largeByte(at+int64(i)) {
				t.Fatalf("byte %d is wrong", at+int64(i))
			}
		}
		if at += int64(n); at%(16<<20) == 0 {
			peak = max(peak, liveHeap())
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if at != largeObject {
		t.Errorf("Get returned %d bytes of %d", at, largeObject)
	}
	if rise := int64(peak) - int64(before); rise > maxRise {
		t.Errorf("Get of %d MiB holds %d MiB of memory", largeObject>>20, rise>>20)
	}
}

// largeReader generates a large object while it is read, and records the peak of
// the live heap.
type largeReader struct {
	at   int64
	peak uint64
}

func (r *largeReader) Read(p []byte) (int, error) {
	if r.at == largeObject {
		return 0, io.EOF
	}
	const step = 16 << 20
	p = p[:min(int64(len(p)), step-r.at%step)]
	for i := range p {
		p[i] = largeByte(r.at + int64(i))
	}
	if r.at += int64(len(p)); r.at%step == 0 {
		r.peak = max(r.peak, liveHeap())
	}
	return len(p), nil
}

// largeByte returns the large object's byte at an offset.
func largeByte(at int64) byte { return byte(at) ^ byte(at>>13) }

// liveHeap returns the size of the heap after a garbage collection, in bytes.
func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
