// Package hosttest gives tests ports over the drivers in memory, and helpers
// that read and write their documents and objects in one line.
//
// Every call of New or With returns an empty world of its own, so tests may run in
// parallel. The helpers fail the test on any error. Only tests import it.
package hosttest

import (
	"io"
	"log/slog"
	"strings"
	"testing"

	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/host"
	"rollout/shared/memory"
)

// New returns ports over a bucket, documents and queues in memory, with the
// system's clock and without a log. Events come from the source "test". A test
// that needs another log or store replaces that field.
func New() host.Ports { return With(clock.System{}) }

// With is New with another clock, for the stores as well.
func With(c clock.Clock) host.Ports {
	return host.Ports{
		Blobs:  memory.NewBucket(c),
		Docs:   memory.NewDocuments(),
		Queues: memory.NewQueues(c),
		Clock:  c,
		Log:    slog.New(slog.DiscardHandler),
		Source: "test",
	}
}

// Put writes an object and returns its version.
func Put(t testing.TB, p host.Ports, key, content string) string {
	t.Helper()
	info, err := p.Blobs.Put(t.Context(), key, strings.NewReader(content), blob.PutOptions{})
	check(t, err)
	return info.Version
}

// Object returns an object's content.
func Object(t testing.TB, p host.Ports, key string) string {
	t.Helper()
	r, _, err := p.Blobs.Get(t.Context(), key, blob.GetOptions{})
	check(t, err)
	defer r.Close()
	b, err := io.ReadAll(r)
	check(t, err)
	return string(b)
}

// Save writes a document, and replaces the present one if there is one.
func Save(t testing.TB, p host.Ports, key string, v any) {
	t.Helper()
	rev, _, err := host.Load(t.Context(), p.Docs, key, new(struct{}))
	check(t, err)
	_, err = host.Save(t.Context(), p.Docs, key, v, rev)
	check(t, err)
}

// Load reads a document. It returns the zero value for an absent one.
func Load[T any](t testing.TB, p host.Ports, key string) T {
	t.Helper()
	var v T
	_, _, err := host.Load(t.Context(), p.Docs, key, &v)
	check(t, err)
	return v
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
