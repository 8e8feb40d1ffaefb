package blob_test

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"rollout/shared/blob"
	"rollout/shared/blob/blobtest"
	"rollout/shared/clock"
	"rollout/shared/fault"
	"rollout/shared/memory"
	"rollout/shared/retry"
)

// breaking is a store whose connections break after a number of bytes.
type breaking struct {
	blob.Store
	after int
	gets  *int // counts calls of Get; optional
}

func (b breaking) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	r, info, err := b.Store.Get(ctx, key, o)
	if err != nil {
		return nil, info, err
	}
	if b.gets != nil {
		*b.gets++
	}
	return &breakable{r, b.after}, info, nil
}

type breakable struct {
	io.ReadCloser
	left int
}

func (b *breakable) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, fault.New(fault.Unavailable, "the connection broke")
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// soon retries after at most a microsecond.
var soon = retry.Policy{Base: time.Microsecond}

func TestReliableConforms(t *testing.T) {
	t.Parallel()
	blobtest.Run(
		t,
		func(*testing.T) blob.Store { return blob.Reliable(memory.NewBucket(clock.System{}), soon) },
		blobtest.Features{InMemory: true},
	)
}

func TestReliableGetResumesAfterBrokenConnection(t *testing.T) {
	t.Parallel()
	const content = "0123456789"
	for name, c := range map[string]struct {
		after int
		o     blob.GetOptions
		want  string
		gets  int
	}{
		"to the end":                   {3, blob.GetOptions{}, content, 4},
		"broken at the end":            {5, blob.GetOptions{}, content, 3},
		"a part":                       {3, blob.GetOptions{Offset: 2, Length: 5}, "23456", 2},
		"a part, broken after its end": {5, blob.GetOptions{Offset: 2, Length: 5}, "23456", 2},
		"a part beyond the end":        {2, blob.GetOptions{Offset: 7, Length: 9}, "789", 2},
		"the whole, without a break":   {11, blob.GetOptions{}, content, 1},
	} {
		gets := 0
		s := breaking{memory.NewBucket(clock.System{}), c.after, &gets}
		if _, err := s.Put(t.Context(), "k", strings.NewReader(content), blob.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		got, err := read(t, blob.Reliable(s, soon), c.o)
		if got != c.want || err != nil || gets != c.gets {
			t.Errorf("%s: %q in %d gets, %v; want %q in %d", name, got, gets, err, c.want, c.gets)
		}
	}
}

func TestReliableGetFailsWithoutProgress(t *testing.T) {
	t.Parallel()
	gets := 0
	s := breaking{memory.NewBucket(clock.System{}), 0, &gets}
	if _, err := s.Put(t.Context(), "k", strings.NewReader("x"), blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := read(t, blob.Reliable(s, soon), blob.GetOptions{}); got != "" ||
		!fault.Is(err, fault.Unavailable) ||
		gets != 5 {
		t.Errorf("%q in %d gets, %v", got, gets, err)
	}
}

func TestReliableGetDoesNotResumeWithAnotherVersion(t *testing.T) {
	t.Parallel()
	s := breaking{Store: memory.NewBucket(clock.System{}), after: 3}
	if _, err := s.Put(t.Context(), "k", strings.NewReader("aaaaaa"), blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	r, _, err := blob.Reliable(s, soon).Get(t.Context(), "k", blob.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := s.Put(t.Context(), "k", strings.NewReader("bbbbbb"), blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); string(got) != "aaa" || !fault.Is(err, fault.Unavailable) {
		t.Errorf("%q, %v", got, err)
	}
}

func read(t *testing.T, s blob.Store, o blob.GetOptions) (string, error) {
	t.Helper()
	r, _, err := s.Get(t.Context(), "k", o)
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	_, err = all.ReadFrom(r)
	if closeErr := r.Close(); err == nil {
		err = closeErr
	}
	return all.String(), err
}
