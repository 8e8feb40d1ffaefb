package blobtest

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

func testGet(t *testing.T, open func(t *testing.T) blob.Store, _ Features) {
	t.Run("an absent key is NotFound", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		put(t, s, "a", "x")
		put(t, s, "dir/b", "x")
		for _, key := range []string{"b", "dir", "a/b", "dir/b/c", "other/x"} {
			wantAbsent(t, s, key)
		}
	})
	t.Run("returns a range", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		whole := put(t, s, "k", "0123456789")
		for _, c := range []struct {
			offset, length int64
			want           string
		}{
			{0, 0, "0123456789"},
			{0, 10, "0123456789"},
			{0, 1, "0"},
			{3, 4, "3456"},
			{3, 0, "3456789"},
			{9, 1, "9"},
			{9, 5, "9"},
			{4, math.MaxInt64, "456789"},
			{10, 0, ""},
			{10, 1, ""},
			{11, 0, ""},
			{math.MaxInt64, 0, ""},
			{math.MaxInt64, math.MaxInt64, ""},
		} {
			got, info, err := get(
				t.Context(),
				s,
				"k",
				blob.GetOptions{Offset: c.offset, Length: c.length, Version: whole.Version},
			)
			if err != nil || got != c.want {
				t.Errorf("range %d+%d = %q, %v, want %q", c.offset, c.length, got, err, c.want)
			}
			if info.Size != 10 || info.Version != whole.Version {
				t.Errorf("range %d+%d describes %+v, not the whole object", c.offset, c.length, info)
			}
		}
	})
	t.Run("a range of an empty object is empty", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		put(t, s, "k", "")
		for _, o := range []blob.GetOptions{{}, {Offset: 1}, {Length: 1}} {
			if got, _, err := get(t.Context(), s, "k", o); got != "" || err != nil {
				t.Errorf("Get %+v = %q, %v", o, got, err)
			}
		}
	})
	t.Run("a negative range is refused", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		put(t, s, "k", "x")
		for _, o := range []blob.GetOptions{{Offset: -1}, {Length: -1}} {
			_, _, err := s.Get(t.Context(), "k", o)
			wantKind(t, err, fault.Invalid, fmt.Sprintf("Get %+v", o))
		}
	})
	t.Run("readers see one whole version during concurrent puts", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		const size = 200_000
		put(t, s, "k", strings.Repeat("a", size))
		errs := race(12, func(i int) error {
			if i < 4 {
				_, err := s.Put(
					t.Context(),
					"k",
					strings.NewReader(strings.Repeat(string(rune('b'+i)), size)),
					blob.PutOptions{},
				)
				return err
			}
			for range 5 {
				got, _, err := get(t.Context(), s, "k", blob.GetOptions{})
				if err != nil {
					return err
				}
				if len(got) != size || strings.Count(got, got[:1]) != size {
					return fmt.Errorf(
						"a reader got %d bytes, of which only %d equal the first",
						len(got),
						strings.Count(got, got[:1]),
					)
				}
			}
			return nil
		})
		for _, err := range errs {
			if err != nil {
				t.Error(err)
			}
		}
	})
}

func testVersions(t *testing.T, open func(t *testing.T) blob.Store, f Features) {
	// wantVersion reads one version with Get and Stat. kept says whether the store
	// must still have it.
	wantVersion := func(t *testing.T, s blob.Store, v blob.Info, want string, kept bool) {
		t.Helper()
		got, info, err := get(t.Context(), s, v.Key, blob.GetOptions{Version: v.Version})
		stat, statErr := s.Stat(t.Context(), v.Key, v.Version)
		if !kept {
			wantKind(t, err, fault.NotFound, "Get of a removed version")
			wantKind(t, statErr, fault.NotFound, "Stat of a removed version")
			return
		}
		if err != nil || got != want || info.Version != v.Version {
			t.Errorf("Get of version %s = %q, %+v, %v, want %q", v.Version, got, info, err, want)
		}
		if statErr != nil || stat.Version != v.Version || stat.Size != v.Size {
			t.Errorf("Stat of version %s = %+v, %v", v.Version, stat, statErr)
		}
	}
	t.Run("an overwritten version has its old bytes or is NotFound", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		one := put(t, s, "k", "one")
		two := put(t, s, "k", "two")
		wantVersion(t, s, one, "one", f.KeepsVersions)
		wantVersion(t, s, two, "two", true)
	})
	t.Run("versions of quick puts of equal size differ", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		seen := map[string]bool{}
		for i := range 30 {
			v := put(t, s, "k", fmt.Sprintf("%02d", i)).Version
			if seen[v] {
				t.Fatalf("put %d has version %s, as an earlier put", i, v)
			}
			seen[v] = true
		}
	})
	t.Run("a deleted version has its old bytes or is NotFound", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		one := put(t, s, "k", "one")
		if err := s.Delete(t.Context(), "k", ""); err != nil {
			t.Fatal(err)
		}
		wantVersion(t, s, one, "one", f.KeepsVersions)
		put(t, s, "k", "two")
		wantVersion(t, s, one, "one", f.KeepsVersions)
	})
	t.Run("an unknown version is NotFound", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		v := put(t, s, "k", "one")
		v.Version = "9" + v.Version
		wantVersion(t, s, v, "", false)
		v.Version = "no/such version"
		wantVersion(t, s, v, "", false)
	})
	t.Run("put, stat, get and list return the same version", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		v := put(t, s, "dir/k", "one")
		wantVersion(t, s, v, "one", true)
		page, err := s.List(t.Context(), "dir/", "", 10)
		if err != nil || len(page) != 1 || page[0].Version != v.Version || page[0].Size != v.Size ||
			page[0].Key != v.Key {
			t.Errorf("List = %+v, %v, want %+v", page, err, v)
		}
	})
}
