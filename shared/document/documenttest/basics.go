package documenttest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rollout/shared/document"
	"rollout/shared/fault"
)

func testReadBack(t *testing.T, f *fixture) {
	for i, value := range []string{
		"", "x", "\x00\xff\xfe not text \n", strings.Repeat("long ", 2000), `{"state":"Running"}`,
	} {
		key := fmt.Sprintf("doc/%d", i)
		rev := f.create(t, key, value)
		f.want(t, key, value, rev)
		changed := value + "!"
		rev = f.replace(t, key, changed, rev)
		f.want(t, key, changed, rev)
		if err := f.Delete(t.Context(), key, rev); err != nil {
			t.Fatalf("delete %s: %v", key, err)
		}
		_, err := f.other.Get(t.Context(), key)
		wantKind(t, err, fault.NotFound, "get of the deleted %s", key)
	}
}

func testAbsent(t *testing.T, f *fixture) {
	ctx := t.Context()
	_, err := f.Get(ctx, "absent")
	wantKind(t, err, fault.NotFound, "get")
	_, err = f.Replace(ctx, "absent", []byte("x"), "")
	wantKind(t, err, fault.Conflict, "replace of the empty revision")
	_, err = f.Get(ctx, "absent")
	wantKind(t, err, fault.NotFound, "get after the refused replace")
	wantKind(t, f.Delete(ctx, "absent", ""), fault.NotFound, "delete of the empty revision")

	rev := f.create(t, "gone", "x")
	if err := f.Delete(ctx, "gone", rev); err != nil {
		t.Fatal(err)
	}
	_, err = f.Replace(ctx, "gone", []byte("y"), rev)
	wantKind(t, err, fault.Conflict, "replace of a deleted document")
	wantKind(t, f.Delete(ctx, "gone", rev), fault.NotFound, "second delete")
}

func testRevisions(t *testing.T, f *fixture) {
	ctx := t.Context()
	old := f.create(t, "doc", "1")
	_, err := f.Create(ctx, "doc", []byte("other"))
	wantKind(t, err, fault.Conflict, "second create")
	now := f.replace(t, "doc", "2", old)
	for _, stale := range []document.Revision{old, "", "0", "-1", "nonsense", " " + now, "0" + now} {
		_, err := f.Replace(ctx, "doc", []byte("lost"), stale)
		wantKind(t, err, fault.Conflict, "replace of revision %q", stale)
		wantKind(t, f.Delete(ctx, "doc", stale), fault.Conflict, "delete of revision %q", stale)
	}
	f.want(t, "doc", "2", now)
	other := f.create(t, "other", "1")
	_, err = f.Replace(ctx, "doc", []byte("lost"), other)
	wantKind(t, err, fault.Conflict, "replace with another document's revision")
}

func testRevisionsAreFresh(t *testing.T, f *fixture) {
	seen := map[document.Revision]bool{}
	fresh := func(rev document.Revision) {
		if seen[rev] {
			t.Fatalf("revision %s of the document was used before", rev)
		}
		seen[rev] = true
	}
	for range 3 {
		rev := f.create(t, "doc", "same")
		fresh(rev)
		next := f.replace(t, "doc", "same", rev)
		fresh(next)
		_, err := f.Replace(t.Context(), "doc", []byte("lost"), rev)
		wantKind(t, err, fault.Conflict, "replace of the same bytes' older revision")
		if err := f.Delete(t.Context(), "doc", next); err != nil {
			t.Fatal(err)
		}
	}
}

func testCopies(t *testing.T, f *fixture) {
	value := []byte("original")
	rev, err := f.Create(t.Context(), "doc", value)
	if err != nil {
		t.Fatal(err)
	}
	copy(value, "SCRIBBLE")
	f.want(t, "doc", "original", rev)

	one, err := f.Get(t.Context(), "doc")
	if err != nil {
		t.Fatal(err)
	}
	many, err := f.GetMany(t.Context(), []string{"doc", "doc"})
	if err != nil {
		t.Fatal(err)
	}
	list, err := f.List(t.Context(), "doc", "", 1)
	if err != nil {
		t.Fatal(err)
	}
	copy(many[0].Value, "SCRIBBLE")
	if string(many[1].Value) != "original" {
		t.Error("two results of one GetMany share their bytes")
	}
	copy(one.Value, "SCRIBBLE")
	copy(list[0].Value, "SCRIBBLE")
	f.want(t, "doc", "original", rev)
}

func testLimits(t *testing.T, f *fixture) {
	ctx := t.Context()
	longest := strings.Repeat("k", document.MaxKey)
	for _, key := range []string{"!", "~", longest, `"'%_*?\`} {
		rev := f.create(t, key, "v")
		f.want(t, key, "v", rev)
	}
	largest := strings.Repeat("v", document.MaxValue)
	rev := f.create(t, "large", largest)
	f.want(t, "large", largest, rev)

	tooLarge := []byte(largest + "v")
	_, err := f.Create(ctx, "too-large", tooLarge)
	wantKind(t, err, fault.Invalid, "create with a value over the limit")
	_, err = f.Replace(ctx, "large", tooLarge, rev)
	wantKind(t, err, fault.Invalid, "replace with a value over the limit")
	f.want(t, "large", largest, rev)

	for _, key := range []string{"", " ", "a b", "tab\t", "nul\x00", "del\x7f", "é", longest + "k"} {
		_, err := f.Get(ctx, key)
		wantKind(t, err, fault.Invalid, "get %.20q", key)
		_, err = f.GetMany(ctx, []string{"fine", key})
		wantKind(t, err, fault.Invalid, "get many %.20q", key)
		_, err = f.Create(ctx, key, nil)
		wantKind(t, err, fault.Invalid, "create %.20q", key)
		_, err = f.Replace(ctx, key, nil, rev)
		wantKind(t, err, fault.Invalid, "replace %.20q", key)
		wantKind(t, f.Delete(ctx, key, rev), fault.Invalid, "delete %.20q", key)
		if key != "" {
			_, err = f.List(ctx, key, "", 1)
			wantKind(t, err, fault.Invalid, "list prefix %.20q", key)
			_, err = f.List(ctx, "", key, 1)
			wantKind(t, err, fault.Invalid, "list after %.20q", key)
		}
	}
	for _, limit := range []int{-1, 0, document.MaxPage + 1} {
		_, err := f.List(ctx, "", "", limit)
		wantKind(t, err, fault.Invalid, "list with limit %d", limit)
	}
}

func testGetMany(t *testing.T, f *fixture) {
	b := f.create(t, "b", "2")
	a := f.create(t, "a", "1")
	empty := f.create(t, "empty", "")
	got, err := f.GetMany(t.Context(), []string{"b", "absent", "a", "b", "empty"})
	if err != nil {
		t.Fatal(err)
	}
	want := []document.Doc{
		{Key: "b", Value: []byte("2"), Revision: b},
		{Key: "absent"},
		{Key: "a", Value: []byte("1"), Revision: a},
		{Key: "b", Value: []byte("2"), Revision: b},
		{Key: "empty", Value: []byte{}, Revision: empty},
	}
	if !slices.EqualFunc(got, want, equal) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got[1].Value != nil {
		t.Errorf("the absent document has the value %q, want nil", got[1].Value)
	}

	if got, err := f.GetMany(t.Context(), nil); err != nil || len(got) != 0 {
		t.Errorf("no keys: got %v, %v", got, err)
	}
	most := make([]string, document.MaxKeys)
	for i := range most {
		most[i] = fmt.Sprintf("k%d", i)
	}
	most[document.MaxKeys-1] = "a"
	got, err = f.GetMany(t.Context(), most)
	if err != nil || len(got) != document.MaxKeys || got[document.MaxKeys-1].Revision != a {
		t.Errorf("%d keys: got %d documents, %v", len(most), len(got), err)
	}
	_, err = f.GetMany(t.Context(), append(most, "b"))
	wantKind(t, err, fault.Invalid, "%d keys", document.MaxKeys+1)
}

func equal(a, b document.Doc) bool {
	return a.Key == b.Key && string(a.Value) == string(b.Value) && a.Revision == b.Revision
}

func testReadYourWrites(t *testing.T, f *fixture) {
	rev := f.create(t, "doc", "0")
	stores := []document.Store{f.Store, f.other}
	for i := 1; i <= 20; i++ {
		value := fmt.Sprint(i)
		var err error
		rev, err = stores[i%2].Replace(t.Context(), "doc", []byte(value), rev)
		if err != nil {
			t.Fatalf("replace %d: %v", i, err)
		}
		f.want(t, "doc", value, rev)
		many, err := stores[(i+1)%2].GetMany(t.Context(), []string{"doc"})
		if err != nil || many[0].Revision != rev {
			t.Fatalf("get many after replace %d: %v, %v", i, many, err)
		}
		list, err := stores[(i+1)%2].List(t.Context(), "d", "", 1)
		if err != nil || len(list) != 1 || list[0].Revision != rev {
			t.Fatalf("list after replace %d: %v, %v", i, list, err)
		}
	}
}
