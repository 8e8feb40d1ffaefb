package gcp

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/googleapis/gax-go/v2"
	"google.golang.org/api/option"
	"pgregory.net/rapid"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

// openBucket returns a bucket whose requests the handler answers.
func openBucket(t *testing.T, handler http.HandlerFunc) *Bucket {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	b, err := NewBucket(t.Context(), Config{Project: "p"}, "b", BucketOptions{
		Backoff: gax.Backoff{Initial: time.Millisecond, Max: time.Millisecond, Multiplier: 1},
		SDK:     []option.ClientOption{option.WithEndpoint(server.URL + "/storage/v1/")},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.versioned = true
	return b
}

// The SDK would repeat a request until the context ends.
func TestBucketGivesUpOnServiceThatFails(t *testing.T) {
	t.Parallel()
	for name, try := range map[string]func(context.Context, *Bucket) error{
		"put": func(ctx context.Context, b *Bucket) error {
			_, err := b.Put(ctx, "k", strings.NewReader("x"), blob.PutOptions{CreateOnly: true})
			return err
		},
		"large put": func(ctx context.Context, b *Bucket) error {
			b.chunk = 256 << 10
			_, err := b.Put(ctx, "k", strings.NewReader(strings.Repeat("x", 1<<20)), blob.PutOptions{CreateOnly: true})
			return err
		},
		"get": func(ctx context.Context, b *Bucket) error {
			_, _, err := b.Get(ctx, "k", blob.GetOptions{})
			return err
		},
		"stat": func(ctx context.Context, b *Bucket) error {
			_, err := b.Stat(ctx, "k", "")
			return err
		},
		"list": func(ctx context.Context, b *Bucket) error {
			_, err := b.List(ctx, "", "", 10)
			return err
		},
		"delete": func(ctx context.Context, b *Bucket) error { return b.Delete(ctx, "k", "") },
	} {
		var requests atomic.Int32
		b := openBucket(t, func(w http.ResponseWriter, _ *http.Request) {
			requests.Add(1)
			w.WriteHeader(http.StatusInternalServerError)
		})
		err := try(t.Context(), b)
		if n := requests.Load(); !fault.Is(err, fault.Unavailable) || n != maxTries {
			t.Errorf("%s: %v after %d requests, want unavailable after %d", name, err, n, maxTries)
		}
	}
}

// Cloud Storage refuses an account that may not delete to write over an object, whatever the
// condition says.
func TestDeniedCreationIsAConflictIfTheObjectExists(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		exists bool
		want   fault.Kind
	}{
		"the object exists": {true, fault.Conflict},
		"it does not exist": {false, fault.Denied},
	} {
		b := openBucket(t, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method != http.MethodGet:
				http.Error(w, `{"error": {"code": 403, "message": "no storage.objects.delete access"}}`, http.StatusForbidden)
			case c.exists:
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"name": "k", "bucket": "b", "generation": "7", "size": "1"}`)
			default:
				http.Error(w, `{"error": {"code": 404, "message": "no such object"}}`, http.StatusNotFound)
			}
		})
		_, err := b.Put(t.Context(), "k", strings.NewReader("x"), blob.PutOptions{CreateOnly: true})
		if !fault.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// A caller who resumes a broken read behind the last byte would take the bytes for good.
func TestWrongChecksumIsCorrupt(t *testing.T) {
	t.Parallel()
	const text = "0123456789"
	sum := binary.BigEndian.AppendUint32(nil, crc32.Checksum([]byte(text), castagnoli)+1)
	b := openBucket(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Goog-Generation", "7")
		w.Header().Set("X-Goog-Hash", "crc32c="+base64.StdEncoding.EncodeToString(sum))
		_, _ = io.WriteString(w, text)
	})
	r, info, err := b.Get(t.Context(), "k", blob.GetOptions{})
	if err != nil || info.Version != "7" {
		t.Fatalf("%+v, %v", info, err)
	}
	defer r.Close()
	for range 2 {
		if _, err := io.ReadAll(r); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%v, want corrupt", err)
		}
	}
}

// Pieces keep their order, and a run is as long as it can be.
func TestPlanJoinKeepsAllPiecesInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var pieces []piece
		for i := range rapid.IntRange(0, 30).Draw(t, "pieces") {
			size := rapid.SampledFrom([]int64{1, composeMin - 1, composeMin, 5 * composeMin}).Draw(t, "size")
			p := piece{key: fmt.Sprint(i), length: size, size: size}
			if size > 1 && rapid.Bool().Draw(t, "partial") {
				p.length--
				p.offset = rapid.Int64Range(0, 1).Draw(t, "offset")
			}
			pieces = append(pieces, p)
		}
		var flat []piece
		run := false // the part before is a run
		for _, part := range planJoin(pieces) {
			for _, p := range part {
				if whole := p.offset == 0 && p.length == p.size && p.size >= composeMin; whole && len(part) > 1 {
					t.Fatalf("the whole object %s is in a run of %d", p.key, len(part))
				}
			}
			if run && !part[0].whole() {
				t.Fatal("two runs follow each other")
			}
			run = !part[0].whole()
			flat = append(flat, part...)
		}
		if fmt.Sprint(flat) != fmt.Sprint(pieces) {
			t.Fatalf("the plan has %v, want %v", flat, pieces)
		}
	})
}
