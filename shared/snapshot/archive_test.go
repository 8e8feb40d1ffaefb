package snapshot

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/memory"
)

func archive(t *testing.T, folder fs.FS) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := writeArchive(&b, folder, defaultLimits); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestArchivesAreTheSameBytesEverywhere pins the format: with another digest, every
// existing snapshot would be lost.
func TestArchivesAreTheSameBytesEverywhere(t *testing.T) {
	t.Parallel()
	files := map[string]string{"b": "2", "a/z": "26", "a/a/one": "1", "a-b": "dash before slash", "c": ""}
	in := fstest.MapFS{}
	dir := t.TempDir()
	for i, name := range []string{"b", "a/z", "a/a/one", "a-b", "c"} {
		when := time.Date(2020+i, 1, 1, 0, 0, 0, 0, time.UTC)
		in[name] = &fstest.MapFile{Data: []byte(files[name]), Mode: 0o600, ModTime: when}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(files[name]), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b := archive(t, in)
	if !bytes.Equal(b, archive(t, os.DirFS(dir))) {
		t.Error("a folder on disk and one in memory give different archives")
	}
	var names []string
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		want := int64(0o644)
		if h.Typeflag == tar.TypeDir {
			want = 0o755
		}
		if h.Mode != want || !h.ModTime.Equal(time.Unix(0, 0)) ||
			h.Uid != 0 || h.Gid != 0 || h.Uname+h.Gname != "" {
			t.Errorf("header %+v", h)
		}
	}
	if got := strings.Join(names, " "); got != "a-b a/ a/a/ a/a/one a/z b c" {
		t.Errorf("entries in order %s", got)
	}
	const golden = "6fa8e217af3598953b968f60d2ff38f5c895223ecec4bbdaa97db96628cdd174"
	if got := identity.Content(b).String(); got != golden {
		t.Errorf("the archive's name is %s, want %s", got, golden)
	}
}

func TestSaveRejectsWhatNotEveryMachineCanStore(t *testing.T) {
	t.Parallel()
	file := &fstest.MapFile{Data: []byte("x")}
	link := &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte("/etc/passwd")}
	const (
		badType = "neither a file nor a folder"
		badChar = "a character that not every machine"
	)
	for name, c := range map[string]struct {
		folder fstest.MapFS
		limits Limits
		want   string
		kind   fault.Kind
	}{
		"link":      {fstest.MapFS{"l": link}, Limits{}, badType, fault.Invalid},
		"device":    {fstest.MapFS{"d": {Mode: fs.ModeDevice}}, Limits{}, badType, fault.Invalid},
		"long name": {fstest.MapFS{strings.Repeat("x", MaxName+1): file}, Limits{}, "longer than 100 bytes", fault.Invalid},
		"umlaut":    {fstest.MapFS{"ü": file}, Limits{}, badChar, fault.Invalid},
		"backslash": {fstest.MapFS{`a\b`: file}, Limits{}, badChar, fault.Invalid},
		"too many entries": {
			fstest.MapFS{"a": file, "b": file, "c": file}, Limits{Entries: 2}, "more than 2 files", fault.Exhausted},
		"too many bytes": {fstest.MapFS{"a": file, "b": file}, Limits{Bytes: 1}, "more than 1 bytes", fault.Exhausted},
	} {
		err := writeArchive(io.Discard, c.folder, c.limits.orDefault())
		if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// growing is a folder whose files are longer than their Stat says.
type growing struct{ fs.FS }

func (g growing) Open(name string) (fs.File, error) {
	f, err := g.FS.Open(name)
	if name == "." || err != nil {
		return f, err
	}
	return longer{f, io.MultiReader(f, strings.NewReader("more"))}, nil
}

type longer struct {
	fs.File
	r io.Reader
}

func (l longer) Read(b []byte) (int, error) { return l.r.Read(b) }

func TestSaveRejectsAFolderThatIsBeingWritten(t *testing.T) {
	t.Parallel()
	bucket := memory.NewBucket(clock.System{})
	s := Store{Blobs: bucket, Docs: memory.NewDocuments(), Clock: clock.System{}}
	folder := growing{fstest.MapFS{"log": {Data: []byte("x")}}}
	_, err := s.Save(t.Context(), folder, Details{Run: testRun, Kind: TrainState, Algorithm: "sft"})
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "log changed while it was read") {
		t.Errorf("got %v", err)
	}
	if left, err := bucket.List(t.Context(), "", "", 10); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

const testRun = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVA")

// tarOf returns an archive of the headers. Regular files are filled with zeros.
func tarOf(headers ...*tar.Header) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Format == 0 {
			h.Format = tar.FormatGNU
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(h); err != nil {
			panic(err)
		}
		if h.Typeflag == tar.TypeReg {
			_, _ = w.Write(make([]byte, h.Size)) // into a buffer
		}
	}
	_ = w.Close() // into a buffer
	return b.Bytes()
}

// reg is the header of a file of 3 bytes.
func reg(name string) *tar.Header { return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: 3} }

// regWith is reg with a change.
func regWith(change func(*tar.Header)) *tar.Header {
	h := reg("a")
	change(h)
	return h
}

// special is the header of an entry that is neither a file nor a folder.
func special(kind byte, linkname string) *tar.Header {
	return &tar.Header{Typeflag: kind, Name: "l", Linkname: linkname}
}

// patched returns an archive with bytes of its first header replaced, and the header's
// checksum corrected.
func patched(b []byte, at int, with string) []byte {
	b = bytes.Clone(b)
	copy(b[at:], with)
	copy(b[148:156], "        ")
	sum := 0
	for _, c := range b[:512] {
		sum += int(c)
	}
	copy(b[148:156], []byte(octal(sum)))
	return b
}

func octal(n int) string {
	digits := make([]byte, 6)
	for i := range digits {
		digits[5-i] = '0' + byte(n>>(3*i)&7)
	}
	return string(digits) + "\x00 "
}

// TestRestoreRejectsHostileArchives restores archives that have the digest in their
// document, so that only their content is hostile.
func TestRestoreRejectsHostileArchives(t *testing.T) {
	t.Parallel()
	good := archive(t, fstest.MapFS{"a": {Data: []byte("abc")}})
	empty := func(name string) *tar.Header { return &tar.Header{Typeflag: tar.TypeReg, Name: name} }
	pax := regWith(func(h *tar.Header) { h.Format, h.PAXRecords = tar.FormatPAX, map[string]string{"X.y": "z"} })
	const (
		badPath  = "not a plain path"
		badType  = "neither a file nor a folder"
		noFolder = "the folder of \"a/b\" is not in it"
		format   = "another format"
		form     = "does not write archives in this form"
	)
	for name, c := range map[string]struct {
		bytes []byte
		want  string
	}{
		"absolute path":      {tarOf(reg("/etc/passwd")), badPath},
		"parent path":        {tarOf(reg("../x")), badPath},
		"hidden parent path": {tarOf(reg("a/../../x")), badPath},
		"dot":                {tarOf(reg("./a")), badPath},
		"backslashes":        {tarOf(reg(`..\x`)), "a character that not every machine"},
		"link":               {tarOf(special(tar.TypeSymlink, "/etc/passwd")), badType},
		"hard link":          {tarOf(special(tar.TypeLink, "a")), badType},
		"device":             {tarOf(special(tar.TypeBlock, "")), badType},
		"pipe":               {tarOf(special(tar.TypeFifo, "")), badType},
		"one name twice":     {tarOf(reg("a"), reg("a")), "each once"},
		"unsorted":           {tarOf(reg("b"), reg("a")), "in order"},
		"file as folder":     {tarOf(reg("a"), reg("a/b")), noFolder},
		"missing folder":     {tarOf(reg("a/b")), noFolder},
		"long name":          {tarOf(reg(strings.Repeat("x", 200))), "longer than 100 bytes"},
		"too many entries":   {tarOf(empty("a"), empty("b"), empty("c"), empty("d"), empty("e")), "more than 4 files"},
		"too large":          {tarOf(regWith(func(h *tar.Header) { h.Size = 2000 })), "more than 1000 bytes"},
		"claims to be large": {patched(good, 124, "77777777777"), "more than 1000 bytes"},
		"PAX":                {tarOf(pax), format},
		"USTAR":              {tarOf(regWith(func(h *tar.Header) { h.Format = tar.FormatUSTAR })), format},
		"sparse":             {patched(good, 156, "S"), badType},
		"PAX sparse":         {paxSparse(), format},
		"executable":         {tarOf(regWith(func(h *tar.Header) { h.Mode = 0o4755 })), form},
		"dated":              {tarOf(regWith(func(h *tar.Header) { h.ModTime = time.Unix(5, 0) })), form},
		"trailing bytes":     {append(bytes.Clone(good), make([]byte, 512)...), form},
		"second archive":     {append(bytes.Clone(good), good...), form},
		"no end":             {good[:1024], form},
		"truncated":          {good[:514], "it is truncated"},
		"empty":              {tarOf(), "it is empty"},
		"not an archive":     {bytes.Repeat([]byte("junk"), 300), "invalid tar header"},
	} {
		s := Store{Blobs: memory.NewBucket(clock.System{}), Docs: memory.NewDocuments(), Clock: clock.System{},
			Limits: Limits{Entries: 4, Bytes: 1000}}
		id := identity.Content(c.bytes)
		key := identity.ContentKey(id)
		if _, err := s.Blobs.Put(t.Context(), key, bytes.NewReader(c.bytes), blob.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		snap := Snapshot{ID: id.String(), Run: testRun, Parts: []Part{{RoleTar, id.String(), int64(len(c.bytes))}}}
		err := s.Restore(t.Context(), snap, filepath.Join(dir, "state"))
		if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: it left %v, %v", name, left, err)
		}
	}
}

// paxSparse returns an archive with a file of 512 bytes that claims to be a gigabyte
// with holes. The library reads such files and cannot write them.
func paxSparse() []byte {
	records := ""
	for _, kv := range []string{
		"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=a", "GNU.sparse.realsize=1000000000",
	} {
		records += fmt.Sprintf("%d %s\n", len(kv)+4, kv) // lengths have two digits
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range []struct{ name, data string }{
		{"PaxHeaders/a", records},
		{"a", "1\n0\n1\n" + strings.Repeat("\x00", 506)},
	} {
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.data)), Mode: 0o644,
			Format: tar.FormatUSTAR}) // into a buffer
		_, _ = io.WriteString(w, f.data)
	}
	_ = w.Close()
	return patched(b.Bytes(), 156, "x")
}

// FuzzExtract extracts hostile archives. No file is written outside of the folder, and
// the files of an accepted archive give the same archive again.
func FuzzExtract(f *testing.F) {
	var b bytes.Buffer
	if err := writeArchive(&b, fstest.MapFS{"a/b": {Data: []byte("x")}, "c": {}}, defaultLimits); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(tarOf(reg("../x")))
	f.Add(tarOf(&tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: ".."}, reg("l/x")))
	f.Add(paxSparse())
	f.Fuzz(func(t *testing.T, in []byte) {
		dir := t.TempDir()
		stage := filepath.Join(dir, "stage")
		if err := os.Mkdir(stage, 0o755); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(stage)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		var canon bytes.Buffer
		err = extract(bytes.NewReader(in), root, &canon, Limits{Entries: 50, Bytes: 1 << 16})
		if beside, _ := os.ReadDir(dir); len(beside) != 1 {
			t.Fatalf("files outside of the folder: %v", beside)
		}
		if err != nil || !bytes.Equal(canon.Bytes(), in) {
			return // rejected
		}
		var again bytes.Buffer
		err = writeArchive(&again, os.DirFS(stage), defaultLimits)
		if err != nil && !fault.Is(err, fault.Invalid) || err == nil && !bytes.Equal(again.Bytes(), in) {
			t.Fatalf("the files of an accepted archive give another archive: %v", err)
		}
	})
}
