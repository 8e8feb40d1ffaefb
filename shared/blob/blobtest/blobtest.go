// Package blobtest is the conformance suite of the blob port. Every driver must
// pass it, against the real store or an emulator.
//
// It tests only the promises of the port, never a driver's implementation. Only
// tests import it.
package blobtest

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

// Features describes the promises that differ between drivers.
type Features struct {
	// KeepsVersions is true if an overwritten or deleted version can still be read.
	KeepsVersions bool
	// InMemory is true if the store keeps objects in this process's memory. The
	// suite then skips the test of memory use.
	InMemory bool
}

// Run tests the driver. Each call of open returns a new empty store and registers
// its cleanup with t.
func Run(t *testing.T, open func(t *testing.T) blob.Store, f Features) {
	t.Helper()
	if !f.InMemory {
		t.Run("Memory", func(t *testing.T) { testMemory(t, open) }) // not parallel, because it measures the heap
	}
	for _, group := range []struct {
		name string
		test func(t *testing.T, open func(t *testing.T) blob.Store, f Features)
	}{
		{"Put", testPut},
		{"Conditions", testConditions},
		{"Get", testGet},
		{"Versions", testVersions},
		{"List", testList},
		{"Join", testJoin},
		{"Delete", testDelete},
		{"Keys", testKeys},
	} {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			group.test(t, open, f)
		})
	}
}

// put creates an object. It fails the test on an error.
func put(t *testing.T, s blob.Store, key, content string) blob.Info {
	t.Helper()
	info, err := s.Put(t.Context(), key, strings.NewReader(content), blob.PutOptions{})
	if err != nil {
		t.Fatalf("Put(%q): %v", key, err)
	}
	if info.Key != key || info.Size != int64(len(content)) || info.Version == "" || info.ModTime.IsZero() {
		t.Fatalf("Put(%q) of %d bytes = %+v", key, len(content), info)
	}
	return info
}

// get reads an object or a part of it.
func get(ctx context.Context, s blob.Store, key string, o blob.GetOptions) (string, blob.Info, error) {
	r, info, err := s.Get(ctx, key, o)
	if err != nil {
		return "", info, err
	}
	content, err := io.ReadAll(r)
	if closeErr := r.Close(); err == nil {
		err = closeErr
	}
	return string(content), info, err
}

// wantContent fails the test unless the object's current content is want.
func wantContent(t *testing.T, s blob.Store, key, want string) {
	t.Helper()
	got, info, err := get(t.Context(), s, key, blob.GetOptions{})
	if err != nil || got != want {
		t.Errorf("Get(%q) = %s, %v, want %s", key, brief(got), err, brief(want))
	}
	if err == nil && (info.Key != key || info.Size != int64(len(want))) {
		t.Errorf("Get(%q) describes %+v, want size %d", key, info, len(want))
	}
}

// wantKind fails the test unless err has the kind.
func wantKind(t *testing.T, err error, want fault.Kind, what string) {
	t.Helper()
	if !fault.Is(err, want) {
		t.Errorf("%s: got error %v, want %s", what, err, want)
	}
}

// wantAbsent fails the test if the key exists.
func wantAbsent(t *testing.T, s blob.Store, key string) {
	t.Helper()
	_, err := s.Stat(t.Context(), key, "")
	wantKind(t, err, fault.NotFound, "Stat "+key)
	_, _, err = s.Get(t.Context(), key, blob.GetOptions{})
	wantKind(t, err, fault.NotFound, "Get "+key)
	for _, k := range keys(t, s, "") {
		if k == key {
			t.Errorf("List shows %q", key)
		}
	}
}

// keys lists all keys with the prefix.
func keys(t *testing.T, s blob.Store, prefix string) []string {
	t.Helper()
	page, err := s.List(t.Context(), prefix, "", 1000)
	if err != nil {
		t.Fatalf("List(%q): %v", prefix, err)
	}
	var all []string
	for _, info := range page {
		all = append(all, info.Key)
	}
	return all
}

// brief shortens long content for messages.
func brief(s string) string {
	if len(s) > 60 {
		return s[:60] + "..."
	}
	return s
}

// pattern returns n bytes that vary with their position and the seed.
func pattern(n int, seed byte) string {
	var b bytes.Buffer
	for i := range n {
		b.WriteByte(seed + byte(i) + byte(i>>8)*3 + byte(i>>16)*7)
	}
	return b.String()
}
