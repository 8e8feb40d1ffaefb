package emulators

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"cloud.google.com/go/storage"
	"google.golang.org/api/option"

	"rollout/localstack/gcp/fakegcs"
	"rollout/shared/blob"
	"rollout/shared/fault"
	"rollout/shared/gcp"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// small are the options of a bucket whose uploads have small chunks, so that an object
// of a megabyte is a large one.
var small = gcp.BucketOptions{Prefix: "p/", ChunkBytes: 256 * kib}

// content returns n bytes that differ in each block.
func content(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%08d\n", i)
	}
	return b.String()[:n]
}

// want fails the test unless the object has the content.
func want(t *testing.T, b *gcp.Bucket, key, content string) {
	t.Helper()
	r, info, err := b.Get(t.Context(), key, blob.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil || string(got) != content || info.Size != int64(len(content)) {
		t.Errorf("%s has %d bytes (%d as described), or other ones; want %d; %v", key, len(got), info.Size, len(content), err)
	}
}

// wantNames fails the test unless the bucket has exactly the objects.
func wantNames(t *testing.T, s Storage, names ...string) {
	t.Helper()
	got, err := s.Names(s.Bucket)
	if err != nil || strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("the bucket has %q, %v; want %q", got, err, names)
	}
}

func TestFailedUploadLeavesNothing(t *testing.T) {
	t.Parallel()
	s := StartStorage(t, fakegcs.Options{})
	b := s.Open(t, small)
	large := func() io.Reader { return strings.NewReader(content(mib)) }
	if _, err := b.Put(t.Context(), "there", large(), blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	broken := func() io.Reader {
		return io.MultiReader(large(), iotest.ErrReader(fault.New(fault.Corrupt, "broken")))
	}
	ctx, cancel := context.WithCancel(t.Context())
	for name, c := range map[string]struct {
		try  func() error
		want fault.Kind
	}{
		"the reader fails": {func() error {
			_, err := b.Put(t.Context(), "a", broken(), blob.PutOptions{CreateOnly: true})
			return err
		}, fault.Corrupt},
		"the reader of an unconditional put fails": {func() error {
			_, err := b.Put(t.Context(), "there", broken(), blob.PutOptions{})
			return err
		}, fault.Corrupt},
		"the object exists": {func() error {
			_, err := b.Put(t.Context(), "there", large(), blob.PutOptions{CreateOnly: true})
			return err
		}, fault.Conflict},
		"another version exists": {func() error {
			_, err := b.Put(t.Context(), "there", large(), blob.PutOptions{IfVersion: "17"})
			return err
		}, fault.Conflict},
		"the caller cancels": {func() error {
			_, err := b.Put(ctx, "b", io.MultiReader(large(), cancelReader{cancel}, large()), blob.PutOptions{CreateOnly: true})
			return err
		}, fault.Canceled},
		"the target of a join exists": {func() error {
			_, err := b.Join(t.Context(), "there", []blob.Range{{Key: "there"}, {Key: "there", Length: 3}})
			return err
		}, fault.Conflict},
	} {
		if err := c.try(); !fault.Is(err, c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		wantNames(t, s, "p/there")
	}
	want(t, b, "there", content(mib))
}

// cancelReader cancels when it is read.
type cancelReader struct{ cancel func() }

func (c cancelReader) Read([]byte) (int, error) {
	c.cancel()
	return 0, io.EOF
}

// A large put without a condition goes through another object, because its bytes are
// gone when another writer was first.
func TestLargePutsOfOneKeyAllSucceed(t *testing.T) {
	t.Parallel()
	s := StartStorage(t, fakegcs.Options{Faults: fakegcs.NewFaults(3, 10, 20, 0)})
	b := s.Open(t, small)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			text := strings.Repeat(string(rune('a'+i)), 600*kib)
			info, err := b.Put(t.Context(), "k", strings.NewReader(text), blob.PutOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			r, _, err := b.Get(t.Context(), "k", blob.GetOptions{Version: info.Version})
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Close()
			if got, err := io.ReadAll(r); err != nil || string(got) != text {
				t.Errorf("writer %d: the version has %d bytes, or others; %v", i, len(got), err)
			}
		})
	}
	all.Wait()
	wantNames(t, s, "p/k")
	// A put that lost its reply and then its place is made again.
	if n, err := s.Versions(s.Bucket, "p/k"); n < 8 || err != nil {
		t.Errorf("%d versions, %v; want 8 or more", n, err)
	}
}

// Runs refer to versions of their inputs.
func TestUnversionedBucketIsRefused(t *testing.T) {
	t.Parallel()
	s := StartStorage(t, fakegcs.Options{})
	s.Bucket = "unversioned"
	s.MakeBucket(s.Bucket, false)
	_, err := s.Blobs(t).Put(t.Context(), "k", strings.NewReader("x"), blob.PutOptions{})
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "gs://unversioned --versioning") {
		t.Errorf("got %v", err)
	}
}

func TestMissingBucketIsNamed(t *testing.T) {
	t.Parallel()
	s := StartStorage(t, fakegcs.Options{})
	s.Bucket = "absent"
	b := s.Blobs(t)
	_, putErr := b.Put(t.Context(), "k", strings.NewReader("x"), blob.PutOptions{})
	_, _, getErr := b.Get(t.Context(), "k", blob.GetOptions{})
	_, statErr := b.Stat(t.Context(), "k", "")
	_, listErr := b.List(t.Context(), "", "", 1)
	for name, err := range map[string]error{"put": putErr, "get": getErr, "stat": statErr, "list": listErr,
		"delete": b.Delete(t.Context(), "k", "")} {
		if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "absent") ||
			!strings.Contains(err.Error(), "cloud.gcs.bucket") {
			t.Errorf("%s: %v, want not found with the bucket's name", name, err)
		}
	}
}

// Cloud Storage joins large objects itself, 32 at a time; what is smaller, or a part of an
// object, is read and uploaded. Nothing but the joined object stays.
func TestJoinInRounds(t *testing.T) {
	t.Parallel()
	s := StartStorage(t, fakegcs.Options{Faults: fakegcs.NewFaults(11, 5, 15, 10)})
	b := s.Open(t, small)
	large, little := content(mib), "a little\n"
	for key, text := range map[string]string{"large": large, "little": little} {
		if _, err := b.Put(t.Context(), key, strings.NewReader(text), blob.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	parts := []blob.Range{{Key: "little"}, {Key: "large", Offset: 1, Length: 700 * kib}}
	expected := little + large[1:1+700*kib]
	for range 33 {
		parts = append(parts, blob.Range{Key: "large"})
		expected += large
	}
	parts = append(parts, blob.Range{Key: "little", Length: 3})
	expected += little[:3]
	info, err := b.Join(t.Context(), "joined", parts)
	if err != nil || info.Size != int64(len(expected)) {
		t.Fatalf("%+v, %v; want %d bytes", info, err, len(expected))
	}
	want(t, b, "joined", expected)
	wantNames(t, s, "p/joined", "p/large", "p/little")
	if n := s.Requests("compose"); n < 3 {
		t.Errorf("%d requests to join; 35 parts take two rounds", n)
	}
	if got := s.Unconditional(); len(got) > 0 {
		t.Errorf("unconditional: %q", got)
	}
}

// Users upload compressed files with a Content-Encoding, which Cloud Storage would
// decompress for a reader.
func TestCompressedObjectIsReadAsStored(t *testing.T) {
	t.Parallel()
	s := StartStorage(t, fakegcs.Options{})
	client, err := storage.NewClient(t.Context(), option.WithEndpoint(s.Address+"/storage/v1/"),
		option.WithoutAuthentication())
	if err != nil {
		t.Fatal(err)
	}
	var stored bytes.Buffer
	z := gzip.NewWriter(&stored)
	_, _ = z.Write([]byte(content(100 * kib))) // a buffer takes everything
	_ = z.Close()                              // likewise
	w := client.Bucket(s.Bucket).Object("p/x.jsonl").If(storage.Conditions{DoesNotExist: true}).NewWriter(t.Context())
	w.ContentEncoding, w.ContentType = "gzip", "application/json"
	if _, err := w.Write(stored.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b := s.Open(t, small)
	want(t, b, "x.jsonl", stored.String())
	r, _, err := b.Get(t.Context(), "x.jsonl", blob.GetOptions{Offset: 10, Length: 7})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || string(got) != stored.String()[10:17] {
		t.Errorf("the range is %q, %v", got, err)
	}
	if _, err := b.Copy(t.Context(), "copy", "x.jsonl"); err != nil {
		t.Fatal(err)
	}
	want(t, b, "copy", stored.String())
}

func TestEveryNewObjectIsNotified(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []fakegcs.Notification
	s := StartStorage(t, fakegcs.Options{Notify: func(n fakegcs.Notification) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, n)
	}})
	b := s.Open(t, small)
	first, err := b.Put(t.Context(), "k", strings.NewReader("one"), blob.PutOptions{CreateOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.Put(t.Context(), "k", strings.NewReader("two"), blob.PutOptions{IfVersion: first.Version})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Delete(t.Context(), "k", ""); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 {
		t.Fatalf("%d notifications, want 2", len(got))
	}
	a := got[1].Attributes()
	if a["objectId"] != "p/k" || a["bucketId"] != s.Bucket || a["objectGeneration"] != second.Version ||
		a["overwroteGeneration"] != first.Version || a["eventType"] != "OBJECT_FINALIZE" {
		t.Errorf("the attributes are %v", a)
	}
	if !bytes.Contains(got[1].ObjectDescription, []byte(`"size":"3"`)) {
		t.Errorf("the body is %s", got[1].ObjectDescription)
	}
}
