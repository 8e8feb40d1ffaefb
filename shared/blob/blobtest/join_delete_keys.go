package blobtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

func testJoin(t *testing.T, open func(t *testing.T) blob.Store, _ Features) {
	t.Run("joins ranges in order", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		put(t, s, "a", "0123456789")
		put(t, s, "dir/b", "abcdef")
		put(t, s, "empty", "")
		info, err := s.Join(t.Context(), "out/joined", []blob.Range{
			{Key: "dir/b"}, {Key: "a", Offset: 2, Length: 3}, {Key: "empty"},
			{Key: "a", Offset: 8}, {Key: "a", Offset: 10}, {Key: "dir/b", Length: 1},
		})
		if err != nil || info.Key != "out/joined" || info.Size != 12 {
			t.Errorf("Join = %+v, %v", info, err)
		}
		wantContent(t, s, "out/joined", "abcdef23489a")
		if now, err := s.Stat(t.Context(), "out/joined", info.Version); err != nil {
			t.Errorf("Stat = %+v, %v", now, err)
		}
	})
	t.Run("joins large parts", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		a, b := pattern(6_000_000, 1), pattern(5_300_000, 9)
		put(t, s, "a", a)
		put(t, s, "b", b)
		if _, err := s.Join(t.Context(), "ab", []blob.Range{{Key: "a"}, {Key: "b", Offset: 1}}); err != nil {
			t.Fatal(err)
		}
		wantContent(t, s, "ab", a+b[1:])
	})
	t.Run("a range outside its object is refused without creating an object", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		put(t, s, "a", "0123456789")
		for name, bad := range map[string]blob.Range{
			"too long":     {Key: "a", Offset: 5, Length: 6},
			"past the end": {Key: "a", Offset: 11},
			"negative":     {Key: "a", Offset: -1},
		} {
			_, err := s.Join(t.Context(), "out", []blob.Range{{Key: "a"}, bad})
			wantKind(t, err, fault.Invalid, name)
			wantAbsent(t, s, "out")
		}
		_, err := s.Join(t.Context(), "out", []blob.Range{{Key: "a"}, {Key: "absent"}})
		wantKind(t, err, fault.NotFound, "absent part")
		wantAbsent(t, s, "out")
		for _, n := range []int{0, blob.MaxParts + 1} {
			_, err = s.Join(t.Context(), "out", slices.Repeat([]blob.Range{{Key: "a"}}, n))
			wantKind(t, err, fault.Invalid, fmt.Sprint(n, " parts"))
		}
	})
	t.Run("join and copy are create-only", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		put(t, s, "a", "source")
		put(t, s, "out", "first")
		_, err := s.Join(t.Context(), "out", []blob.Range{{Key: "a"}})
		wantKind(t, err, fault.Conflict, "Join")
		_, err = s.Copy(t.Context(), "out", "a")
		wantKind(t, err, fault.Conflict, "Copy")
		_, err = s.Copy(t.Context(), "a", "a")
		wantKind(t, err, fault.Conflict, "Copy to itself")
		wantContent(t, s, "out", "first")
		wantContent(t, s, "a", "source")
	})
	t.Run("a copy is independent of its source", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		put(t, s, "a", "source")
		info, err := s.Copy(t.Context(), "x/y", "a")
		if err != nil || info.Key != "x/y" || info.Size != 6 {
			t.Errorf("Copy = %+v, %v", info, err)
		}
		put(t, s, "a", "changed")
		if err := s.Delete(t.Context(), "a", ""); err != nil {
			t.Error(err)
		}
		got, _, err := get(t.Context(), s, "x/y", blob.GetOptions{Version: info.Version})
		if err != nil || got != "source" {
			t.Errorf("Get of the copy = %q, %v", got, err)
		}
	})
	t.Run("copying an absent object is NotFound", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		_, err := s.Copy(t.Context(), "b", "a")
		wantKind(t, err, fault.NotFound, "Copy")
		wantAbsent(t, s, "b")
	})
	t.Run("of 20 concurrent copies one wins", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		put(t, s, "a", "source")
		onlyWinner(t, race(20, func(int) error {
			_, err := s.Copy(t.Context(), "b", "a")
			return err
		}))
		wantContent(t, s, "b", "source")
	})
}

func testDelete(t *testing.T, open func(t *testing.T) blob.Store, _ Features) {
	t.Run("removes an object, and succeeds for an absent one", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		put(t, s, "dir/sub/a", "x")
		put(t, s, "dir/sub/b", "x")
		for range 2 {
			if err := s.Delete(t.Context(), "dir/sub/a", ""); err != nil {
				t.Error(err)
			}
		}
		wantAbsent(t, s, "dir/sub/a")
		wantContent(t, s, "dir/sub/b", "x")
		for _, never := range []string{"never", "dir", "dir/sub", "dir/sub/b/c", "no/such/folder"} {
			if err := s.Delete(t.Context(), never, ""); err != nil {
				t.Errorf("Delete(%q) = %v", never, err)
			}
		}
		wantContent(t, s, "dir/sub/b", "x")
	})
	t.Run("with a version removes only that version", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		one := put(t, s, "k", "one")
		two := put(t, s, "k", "two")
		wantKind(t, s.Delete(t.Context(), "k", one.Version), fault.Conflict, "Delete of an old version")
		wantContent(t, s, "k", "two")
		if err := s.Delete(t.Context(), "k", two.Version); err != nil {
			t.Error(err)
		}
		wantAbsent(t, s, "k")
		if err := s.Delete(t.Context(), "k", two.Version); err != nil {
			t.Errorf("repeated Delete = %v", err)
		}
	})
	t.Run("a deleted key can be put again", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		put(t, s, "a/b/k", "one")
		if err := s.Delete(t.Context(), "a/b/k", ""); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(t.Context(), "a/b/k", strings.NewReader("two"), blob.PutOptions{CreateOnly: true}); err != nil {
			t.Fatal(err)
		}
		wantContent(t, s, "a/b/k", "two")
	})
	t.Run("puts succeed during deletes in the same folder", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		for _, err := range race(16, func(i int) error {
			for j := range 10 {
				key := fmt.Sprintf("a/b/c/%d-%d", i, j)
				if _, err := s.Put(t.Context(), key, strings.NewReader(key), blob.PutOptions{CreateOnly: true}); err != nil {
					return err
				}
				if err := s.Delete(t.Context(), key, ""); err != nil {
					return err
				}
			}
			return nil
		}) {
			if err != nil {
				t.Error(err)
			}
		}
		if got := keys(t, s, ""); len(got) != 0 {
			t.Errorf("List = %q", got)
		}
	})
}

// hostile are keys that every driver must refuse.
var hostile = []string{
	"", "/", "/etc/passwd", "a/", "a//b", ".", "..", "../x", "a/../../x", "a/..", "a/./b", ".hidden", "a/.hidden/b",
	"a\x00b", "a\nb", "a\x1b[2Jb", "a\x7f", "a\xff", strings.Repeat("a", 256), strings.Repeat("a/", 256) + "a",
}

func testKeys(t *testing.T, open func(t *testing.T) blob.Store, _ Features) {
	t.Run("every method refuses hostile keys", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		put(t, s, "ok", "x")
		for _, key := range hostile {
			ctx := t.Context()
			_, err := s.Put(ctx, key, strings.NewReader("x"), blob.PutOptions{})
			wantKind(t, err, fault.Invalid, fmt.Sprintf("Put %q", key))
			_, _, err = s.Get(ctx, key, blob.GetOptions{})
			wantKind(t, err, fault.Invalid, fmt.Sprintf("Get %q", key))
			_, err = s.Stat(ctx, key, "")
			wantKind(t, err, fault.Invalid, fmt.Sprintf("Stat %q", key))
			wantKind(t, s.Delete(ctx, key, ""), fault.Invalid, fmt.Sprintf("Delete %q", key))
			_, err = s.Copy(ctx, key, "ok")
			wantKind(t, err, fault.Invalid, fmt.Sprintf("Copy to %q", key))
			_, err = s.Copy(ctx, "new", key)
			wantKind(t, err, fault.Invalid, fmt.Sprintf("Copy of %q", key))
			_, err = s.Join(ctx, key, []blob.Range{{Key: "ok"}})
			wantKind(t, err, fault.Invalid, fmt.Sprintf("Join to %q", key))
			_, err = s.Join(ctx, "new", []blob.Range{{Key: key}})
			wantKind(t, err, fault.Invalid, fmt.Sprintf("Join of %q", key))
		}
		for _, prefix := range []string{"/", "../", "a//", "\x00", "a/../b", strings.Repeat("a", 513)} {
			_, err := s.List(t.Context(), prefix, "", 10)
			wantKind(t, err, fault.Invalid, fmt.Sprintf("List %q", prefix))
		}
		if got := keys(t, s, ""); !slices.Equal(got, []string{"ok"}) {
			t.Errorf("List = %q", got)
		}
	})
	t.Run("awkward keys are stored unchanged", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		longest := strings.Repeat("x", 255) + "/" + strings.Repeat("y", 255)
		long := []string{longest, strings.Repeat("s/", 255) + "zz", strings.Repeat("語", 85)}
		for _, key := range slices.Concat(awkward, long) {
			put(t, s, key, "content of "+key)
		}
		for _, key := range awkward {
			wantContent(t, s, key, "content of "+key)
			if _, err := s.Copy(t.Context(), "copies/"+key, key); err != nil {
				t.Errorf("Copy(%q): %v", key, err)
			}
			wantContent(t, s, "copies/"+key, "content of "+key)
		}
	})
	t.Run("a key below another is stored or refused without harm to either", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		put(t, s, "a", "object a")
		put(t, s, "b/c", "object b/c")
		for _, key := range []string{"a/x", "b"} {
			for _, o := range []blob.PutOptions{{}, {CreateOnly: true}} {
				_, err := s.Put(t.Context(), key, strings.NewReader("x"), o)
				if err != nil && !fault.Is(err, fault.Invalid) && !(o.CreateOnly && fault.Is(err, fault.Conflict)) {
					t.Errorf("Put(%q, %+v) = %v, want success or Invalid", key, o, err)
				}
			}
		}
		wantContent(t, s, "a", "object a")
		wantContent(t, s, "b/c", "object b/c")
	})
}
