package fakegcs

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"cloud.google.com/go/storage"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"
)

const bucket = "b"

// start returns an emulator with a bucket, and a client of it.
func start(t *testing.T) (*Server, *storage.BucketHandle, string) {
	t.Helper()
	s, address, end, err := Start(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	s.MakeBucket(bucket, true)
	client, err := storage.NewClient(t.Context(), option.WithEndpoint(address+"/storage/v1/"),
		option.WithoutAuthentication())
	if err != nil {
		t.Fatal(err)
	}
	return s, client.Bucket(bucket), address
}

// put makes an object and returns its generation.
func put(t *testing.T, o *storage.ObjectHandle, content string) int64 {
	t.Helper()
	w := o.NewWriter(t.Context())
	if _, err := io.WriteString(w, content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.Attrs().Generation
}

// read returns the content of an object.
func read(t *testing.T, o *storage.ObjectHandle) (string, error) {
	t.Helper()
	r, err := o.NewReader(t.Context())
	if err != nil {
		return "", err
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	return string(content), err
}

// status returns the status of the answer that err is about; 200 for nil.
func status(err error) int {
	var answer *googleapi.Error
	switch {
	case err == nil:
		return http.StatusOK
	case errors.As(err, &answer):
		return answer.Code
	case errors.Is(err, storage.ErrObjectNotExist):
		return http.StatusNotFound
	}
	return 0
}

// Each case is a request with a condition or a generation, and the status that Google
// documents for it. fake-gcs-server alone answers almost all of them with 200.
func TestConditionsHold(t *testing.T) {
	t.Parallel()
	s, b, _ := start(t)
	match := func(generation int64) storage.Conditions { return storage.Conditions{GenerationMatch: generation} }
	absent := storage.Conditions{DoesNotExist: true}
	at := func(name string) *storage.ObjectHandle { return b.Object(name) }
	old, now := put(t, at("a"), "old"), put(t, at("a"), "now")
	put(t, at("there"), "there")
	stat := func(o *storage.ObjectHandle) error {
		_, err := o.Attrs(t.Context())
		return err
	}
	get := func(o *storage.ObjectHandle) error {
		_, err := read(t, o)
		return err
	}
	compose := func(to *storage.ObjectHandle, from ...*storage.ObjectHandle) error {
		_, err := to.ComposerFrom(from...).Run(t.Context())
		return err
	}
	rewrite := func(to, from *storage.ObjectHandle) error {
		_, err := to.CopierFrom(from).Run(t.Context())
		return err
	}
	for name, c := range map[string]struct {
		try  func() error
		want int
	}{
		"stat of the present one":           {func() error { return stat(at("a").If(match(now))) }, 200},
		"stat of a replaced one":            {func() error { return stat(at("a").If(match(old))) }, 412},
		"read of the present one":           {func() error { return get(at("a").If(match(now))) }, 200},
		"read of a replaced one":            {func() error { return get(at("a").If(match(old))) }, 412},
		"join over a present object":        {func() error { return compose(at("there").If(absent), at("a")) }, 412},
		"join over another generation":      {func() error { return compose(at("there").If(match(1)), at("a")) }, 412},
		"join of a source with a condition": {func() error { return compose(at("j"), at("a").If(match(old))) }, 412},
		"join of an absent source":          {func() error { return compose(at("j"), at("none")) }, 404},
		"join of an absent generation":      {func() error { return compose(at("j"), at("a").Generation(1)) }, 404},
		"copy over a present object":        {func() error { return rewrite(at("there").If(absent), at("a")) }, 412},
		"copy over another generation":      {func() error { return rewrite(at("there").If(match(1)), at("a")) }, 412},
		"copy of a source with a condition": {func() error { return rewrite(at("c"), at("a").If(match(old))) }, 412},
		"copy of an absent source":          {func() error { return rewrite(at("c"), at("none")) }, 404},
		"delete of a replaced one":          {func() error { return at("a").If(match(old)).Delete(t.Context()) }, 412},
		"join of an old generation":         {func() error { return compose(at("j1"), at("a").Generation(old)) }, 200},
		"copy of an old generation":         {func() error { return rewrite(at("c1"), at("a").Generation(old)) }, 200},
	} {
		if err := c.try(); status(err) != c.want {
			t.Errorf("%s: %v, want %d", name, err, c.want)
		}
	}
	for name, want := range map[string]string{"a": "now", "there": "there", "j1": "old", "c1": "old"} {
		if got, err := read(t, at(name)); got != want || err != nil {
			t.Errorf("%s is %q, %v, want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"j", "c"} {
		if err := stat(at(name)); status(err) != 404 {
			t.Errorf("%s: %v, want none", name, err)
		}
	}
	if n, err := s.Versions(bucket, "a"); n != 2 || err != nil {
		t.Errorf("%d versions, %v, want 2", n, err)
	}
	if err := at("a").If(match(now)).Delete(t.Context()); err != nil {
		t.Error(err)
	}
	if got, err := read(t, at("a").Generation(now)); got != "now" || err != nil {
		t.Errorf("the deleted version is %q, %v", got, err)
	}
}

// The other requests of the two fail, whichever comes first.
func TestOneOfManyConditionalChangesHolds(t *testing.T) {
	t.Parallel()
	_, b, _ := start(t)
	from := b.Object("from")
	put(t, from, "x")
	o := b.Object("o")
	current := storage.Conditions{GenerationMatch: put(t, o, "y")}
	for name, change := range map[string]func() error{
		"copy": func() error {
			_, err := b.Object("copied").If(storage.Conditions{DoesNotExist: true}).CopierFrom(from).Run(t.Context())
			return err
		},
		"join": func() error {
			_, err := b.Object("joined").If(storage.Conditions{DoesNotExist: true}).ComposerFrom(from, from).Run(t.Context())
			return err
		},
		"delete": func() error { return o.If(current).Delete(t.Context()) },
	} {
		var all sync.WaitGroup
		var won atomic.Int32
		for range 50 {
			all.Go(func() {
				if change() == nil {
					won.Add(1)
				}
			})
		}
		all.Wait()
		if n := won.Load(); n != 1 {
			t.Errorf("%s: %d of 50 succeeded, want one", name, n)
		}
	}
}

// session opens a resumable upload and returns its address.
func session(t *testing.T, address, name string) string {
	t.Helper()
	r, err := http.Post(address+"/upload/storage/v1/b/"+bucket+"/o?uploadType=resumable&ifGenerationMatch=0&name="+name,
		"application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close() // it is empty
	return r.Header.Get("Location")
}

// send sends a chunk and returns the status, 308 if more is expected.
func send(t *testing.T, at, contentRange, hash string, chunk []byte) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at, bytes.NewReader(chunk))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Range", contentRange)
	r.Header.Set("X-GUploader-No-308", "yes")
	if hash != "" {
		r.Header.Set("X-Goog-Hash", "crc32c="+hash)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close() // it is not used
	if answer.Header.Get("X-Http-Status-Code-Override") == "308" {
		return 308
	}
	return answer.StatusCode
}

// A client repeats a chunk whose answer was lost. fake-gcs-server would append it again,
// and would not know a session that is complete.
func TestRepeatedChunksAreIgnored(t *testing.T) {
	t.Parallel()
	_, b, address := start(t)
	unit := bytes.Repeat([]byte("0123456789abcdef"), chunkUnit/16)
	rest := []byte("the rest")
	sum := crc32.Checksum(append(bytes.Clone(unit), rest...), crc32.MakeTable(crc32.Castagnoli))
	hash := base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
	first := fmt.Sprintf("bytes 0-%d/*", len(unit)-1)
	last := fmt.Sprintf("bytes %d-%d/%d", len(unit), len(unit)+len(rest)-1, len(unit)+len(rest))
	at := session(t, address, "k")
	for i, c := range []struct {
		contentRange, hash string
		chunk              []byte
		want               int
	}{
		{last, hash, rest, 503}, // behind a gap
		{"bytes 0-9/*", "", unit[:10], 400},
		{first, "", unit, 308},
		{first, "", unit, 308},
		{last, "AAAAAA==", rest, 400},
		{last, hash, rest, 200},
		{last, hash, rest, 200},
	} {
		if got := send(t, at, c.contentRange, c.hash, c.chunk); got != c.want {
			t.Errorf("request %d: %d, want %d", i, got, c.want)
		}
	}
	if got, err := read(t, b.Object("k")); got != string(unit)+string(rest) || err != nil {
		t.Errorf("%d bytes, or other ones; %v", len(got), err)
	}
	if got := send(t, session(t, address, "k"), "bytes 0-1/2", "", []byte("xy")); got != 412 {
		t.Errorf("an upload over a present object: %d, want 412", got)
	}
	if got := send(t, at+"x", "bytes 0-1/2", "", []byte("xy")); got != 404 {
		t.Errorf("an unknown session: %d, want 404", got)
	}
}
