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
	ID       string    `json:"id"` // Examples: "kjv/1Ki3", "opticks/007"
	Text     string    `json:"text,omitempty"`
	Messages []Message `json:"messages,omitempty"`
}

// Message is a turn of a chat.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

const (
	heldOutOf = 25 // one document of so many is held out
	chatOf    = 12 // one training document of so many is also used as chats
)

// opticksBytes is the minimum size of a document of the Opticks.
const opticksBytes = 4 << 10

// Build returns the training documents and the held-out documents. The share of
// held-out documents is the same for both texts.
func Build(bible []Verse, opticks []string) (learn, heldOut []Document) {
	for _, source := range [][]part{chapters(bible), pages(opticks)} {
		held := heldOutIDs(source)
		for _, d := range source {
			switch {
			case held[d.ID]:
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

// heldOutIDs returns the ids of the documents to hold out: those for whose names
// draw returns the lowest numbers.
func heldOutIDs(source []part) map[string]bool {
	ids := make([]string, len(source))
	for i, d := range source {
		ids[i] = d.ID
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Compare(draw("held out", a), draw("held out", b)) })
	held := make(map[string]bool)
	for _, id := range ids[:(len(ids)+heldOutOf-1)/heldOutOf] {
		held[id] = true
	}
	return held
}

// draw returns a pseudo-random number that depends only on its use and the name.
func draw(use, name string) uint64 {
	sum := blake3.Sum256([]byte(use + "\x00" + name))
	return binary.LittleEndian.Uint64(sum[:])
}

// part is a document with the pieces of its text.
type part struct {
	Document
	pieces []string // verses without names, or paragraphs
	bible  bool     // the document is a chapter of the Bible
}

// chapters returns the chapters of the Bible. Each line is a verse with its name.
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

// pages joins paragraphs into documents, with empty lines between them.
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

// verseTurns is the number of verses of a chat. The user's turn is the first verse,
// the assistant's turn the others.
const verseTurns = 5

// chats returns the document as chats: the user begins a text, and the assistant
// continues it.
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

// maxLine is the maximum length of a line in bytes.
const maxLine = 16 << 20

// Read reads documents that Write wrote. Each must have either a text or messages.
// Faults are Invalid and name the line.
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
			return nil, fault.New(fault.Invalid,
				`corpus: line %d has neither or both of "text" and "messages": it must have exactly one`, n)
		}
		out = append(out, d)
	}
	return out, fault.WithKind(fault.Invalid, lines.Err(), "corpus: after line %d", len(out))
}
