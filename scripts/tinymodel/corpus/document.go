package corpus

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"lukechampine.com/blake3"

	"rollout/shared/fault"
)

// Document is a line of a corpus: a text, or a chat.
type Document struct {
	ID       string    `json:"id"` // Example: "kjv/1Ki3"
	Text     string    `json:"text,omitempty"`
	Messages []Message `json:"messages,omitempty"`
}

// Message is one turn of a chat.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// heldOutOf is how many documents there are for one that is held out, chatOf
// for one that is learnt as chats too.
const (
	heldOutOf = 25
	chatOf    = 12
)

// opticksBytes is the least size of a document of the Opticks.
const opticksBytes = 4 << 10

// Build returns the documents to learn from and those that are held out, which
// are the same share of both sources.
func Build(bible []Verse, opticks []string) (learn, heldOut []Document) {
	for _, source := range [][]part{chapters(bible), pages(opticks)} {
		kept := heldOutIDs(source)
		for _, d := range source {
			switch {
			case kept[d.ID]:
				heldOut = append(heldOut, d.Document)
				continue
			case draw("chat", d.ID)%chatOf == 0:
				learn = append(learn, d.chats()...)
			}
			learn = append(learn, d.Document)
		}
	}
	return learn, heldOut
}

// heldOutIDs returns the documents of a source to hold out: those whose names draw
// the lowest numbers.
func heldOutIDs(source []part) map[string]bool {
	ids := make([]string, len(source))
	for i, d := range source {
		ids[i] = d.ID
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Compare(draw("held out", a), draw("held out", b)) })
	kept := make(map[string]bool)
	for _, id := range ids[:(len(ids)+heldOutOf-1)/heldOutOf] {
		kept[id] = true
	}
	return kept
}

// draw is a number that depends on what it is for and the name alone.
func draw(use, name string) uint64 {
	sum := blake3.Sum256([]byte(use + "\x00" + name))
	return binary.LittleEndian.Uint64(sum[:])
}

// part is a document and the pieces it is made of.
type part struct {
	Document
	pieces []string
	bible  bool
}

// chapters joins verses, one a line with its name, as the source has them.
func chapters(bible []Verse) (out []part) {
	for _, v := range bible {
		id := fmt.Sprintf("kjv/%s%d", v.Book, v.Chapter)
		if len(out) == 0 || out[len(out)-1].ID != id {
			out = append(out, part{Document: Document{ID: id}, bible: true})
		}
		p := &out[len(out)-1]
		p.Text += v.Name() + " " + v.Text + "\n"
		p.pieces = append(p.pieces, v.Text)
	}
	return out
}

// pages joins paragraphs, an empty line between two.
func pages(paragraphs []string) (out []part) {
	for _, text := range paragraphs {
		if len(out) == 0 || len(out[len(out)-1].Text) >= opticksBytes {
			out = append(out, part{Document: Document{ID: fmt.Sprintf("opticks/%03d", len(out)+1)}})
		}
		p := &out[len(out)-1]
		if p.Text != "" {
			p.Text += "\n"
		}
		p.Text += text + "\n"
		p.pieces = append(p.pieces, text)
	}
	return out
}

// verseTurns is how many verses one exchange of a chat has: the first is the
// user's, the assistant continues.
const verseTurns = 5

// chats returns a part as exchanges: what a text begins with is the user's,
// how it goes on the assistant's.
func (p part) chats() (out []Document) {
	add := func(ask, answer string) {
		out = append(out, Document{
			ID:       fmt.Sprintf("%s/chat%d", p.ID, len(out)+1),
			Messages: []Message{{"user", ask}, {"assistant", answer}},
		})
	}
	if !p.bible {
		for _, text := range p.pieces {
			if ask, answer, ok := strings.Cut(text, ". "); ok && len(ask) > 40 {
				add(ask+".", answer)
			}
		}
		return out
	}
	for at := 0; at+1 < len(p.pieces); at += verseTurns {
		add(p.pieces[at], strings.Join(p.pieces[at+1:min(at+verseTurns, len(p.pieces))], " "))
	}
	return out
}

// Write writes documents as JSON lines.
func Write(w io.Writer, documents []Document) error {
	b := bufio.NewWriter(w)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	for _, d := range documents {
		if err := e.Encode(d); err != nil {
			return err
		}
	}
	return b.Flush()
}

// maxLine is the longest line of a corpus, in bytes.
const maxLine = 16 << 20

// Read reads what Write wrote: each document has a text or messages. It fails
// with Invalid, naming the line.
func Read(r io.Reader) ([]Document, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	var out []Document
	for n := 1; lines.Scan(); n++ {
		var d Document
		if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
			return nil, fault.WithKind(fault.Invalid, err, "corpus: line %d", n)
		}
		if (d.Text == "") == (len(d.Messages) == 0) {
			return nil, fault.New(fault.Invalid, `corpus: line %d has neither or both of "text" and "messages": give it one`, n)
		}
		out = append(out, d)
	}
	return out, fault.WithKind(fault.Invalid, lines.Err(), "corpus: after line %d", len(out))
}
