package corpus

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"rollout/shared/fault"
)

// bible returns a data file with the given windows of text. Each window must
// compress to whole groups of codes, or be the last.
func bible(windows ...string) []byte {
	b := make([]byte, windowAt)
	copy(b, magic+"Compressed Data File")
	b = binary.BigEndian.AppendUint32(b, 1<<16)
	b = binary.BigEndian.AppendUint32(b, uint32(len(windows)))
	at := offsetsAt + 4*(len(windows)+1)
	var data []byte
	for _, w := range windows {
		b = binary.BigEndian.AppendUint32(b, uint32(at+len(data)))
		c := compress([]byte(w))
		for out, _ := decompress(c, 1<<16); len(out) > len(w); out, _ = decompress(c, 1<<16) {
			c = c[:len(c)-1] // the padding of the last group
		}
		data = append(data, c...)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(at+len(data)))
	return append(b, data...)
}

func TestVersesAreReadAcrossWindows(t *testing.T) {
	t.Parallel()
	got, err := KJV(bible("Holy Bible\nGe1:1 In the beginning God created the hea",
		"ven and the earth.\n1Ki22:53 For he served Baal, and wor", "shipped him.\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Verse{
		{"Ge", 1, 1, "In the beginning God created the heaven and the earth."},
		{"1Ki", 22, 53, "For he served Baal, and worshipped him."},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if name := got[1].Name(); name != "1Ki22:53" {
		t.Errorf("the second verse's name is %s, want 1Ki22:53", name)
	}
}

func TestKJVRefusesOtherAndDamagedFiles(t *testing.T) {
	t.Parallel()
	good := bible("Title\nGe1:1 In the beginning\n")
	change := func(at int, v uint32) []byte {
		b := bytes.Clone(good)
		binary.BigEndian.PutUint32(b[at:], v)
		return b
	}
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"empty file", nil, "not the data file"},
		{"text file", bytes.Repeat([]byte("In the beginning"), 100), "not the data file"},
		{"a million windows", change(windowAt+4, 1<<20), "do not fit"},
		{"huge windows", change(windowAt, 1<<30), "do not fit"},
		{"more offsets than bytes", change(windowAt+4, 1000), "do not fit"},
		{"window beyond the end", change(offsetsAt+4, 1<<20), "window 0 lies from"},
		{"window that is too long", change(windowAt, 3), "longer than 3 bytes"},
		{"line without a verse", bible("Title\nIn the beginning\n"), "line 2 is not a verse"},
		{"line without a verse number", bible("Title\nGe1:1 In\nGe1:x And\n"), "line 3 has no verse number"},
	} {
		if _, err := KJV(c.b); fault.KindOf(err) != fault.Corrupt || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestOpticksReturnsPlainParagraphs(t *testing.T) {
	t.Parallel()
	got := Opticks(`Produced by Someone at
http://www.pgdp.net.


OPTICKS:

_The_ FOURTH EDITION,
_corrected_.


[Illustration: FIG. 1.]

       *       *       *

 Deg. | Min.
   00 | 10

And so the Object Q [in FIG. 10.] seen
through the Lens.`)
	want := []string{
		"OPTICKS:", "The FOURTH EDITION, corrected.", "And so the Object Q [in FIG. 10.] seen through the Lens.",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// sources returns a bible of 100 chapters of 12 verses, and 300 paragraphs.
func sources() (verses []Verse, paragraphs []string) {
	for c := range 100 {
		for v := range 12 {
			verses = append(verses, Verse{"Ge", c + 1, v + 1, fmt.Sprintf("Verse %d of chapter %d.", v+1, c+1)})
		}
	}
	for p := range 300 {
		long := strings.Repeat("It is long. ", 80)
		text := fmt.Sprintf("Paragraph %d is about the colours of light in glass. %s", p, long)
		paragraphs = append(paragraphs, text)
	}
	return verses, paragraphs
}

func TestHeldOutDocumentsAreNotInTheTrainingDocuments(t *testing.T) {
	t.Parallel()
	learn, heldOut := Build(sources())
	count := map[string]int{}
	secret := map[string]bool{}
	for _, d := range heldOut {
		count[strings.Split(d.ID, "/")[0]]++
		for line := range strings.Lines(d.Text) {
			_, text, _ := strings.Cut(line, " ")
			secret[strings.TrimSpace(text)] = true
		}
		if len(d.Messages) > 0 {
			t.Errorf("%s is a chat", d.ID)
		}
	}
	if want := map[string]int{"kjv": 4, "opticks": 3}; !reflect.DeepEqual(count, want) {
		t.Errorf("held out: %v, want %v", count, want)
	}
	texts := 0
	for _, d := range learn {
		all := d.Text
		for _, m := range d.Messages {
			all += m.Content + "\n"
		}
		texts += min(1, len(d.Text))
		for s := range secret {
			if s != "" && strings.Contains(all, s) {
				t.Fatalf("%s has %q, which is held out", d.ID, s)
			}
		}
	}
	if want := 100 + 60 - 7; texts != want {
		t.Errorf("%d training texts, want %d", texts, want)
	}
	again, _ := Build(sources())
	if !reflect.DeepEqual(learn, again) {
		t.Error("building twice gives different documents")
	}
}

func TestAssistantContinuesTheUsersText(t *testing.T) {
	t.Parallel()
	verses, paragraphs := sources()
	got := chapters(verses)[0].chats()
	if len(got) != 3 {
		t.Fatalf("a chapter of 12 verses has %d chats, want 3", len(got))
	}
	want := Document{ID: "kjv/Ge1/chat3", Messages: []Message{
		{"user", "Verse 11 of chapter 1."}, {"assistant", "Verse 12 of chapter 1."},
	}}
	if !reflect.DeepEqual(got[2], want) {
		t.Errorf("the third chat is %+v, want %+v", got[2], want)
	}
	got = pages(paragraphs)[0].chats()
	if len(got) == 0 || got[0].Messages[0].Content != "Paragraph 0 is about the colours of light in glass." ||
		!strings.HasPrefix(got[0].Messages[1].Content, "It is long.") {
		t.Errorf("the chats of a page are %+v", got)
	}
}

func TestReadReadsWhatWriteWroteAndNamesBadLines(t *testing.T) {
	t.Parallel()
	learn, _ := Build(sources())
	var b bytes.Buffer
	if err := Write(&b, learn); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&b)
	if err != nil || !reflect.DeepEqual(got, learn) {
		t.Errorf("read %d documents, %v; want the %d written", len(got), err, len(learn))
	}
	for text, want := range map[string]string{
		"{\"id\":\"a\",\"text\":\"x\"}\n{\"id\"":                  "line 2",
		"{\"id\":\"a\"}":                                          "line 1 has neither",
		`{"text":"x","messages":[{"role":"user","content":"y"}]}`: "line 1 has neither or both",
		`{"text":"` + strings.Repeat("x", maxLine) + `"}`:         "after line 0",
		`{"text":"x"}` + "\n" + `{"text":1}`:                      "line 2",
	} {
		_, err := Read(strings.NewReader(text))
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}
