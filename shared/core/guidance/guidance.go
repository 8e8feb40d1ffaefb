package guidance

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/text"
)

// SchemaVersion is the version of the encoding.
const SchemaVersion = 1

// Guidance is one step of a mission's guidance. New makes the first step, and Apply
// each further one.
type Guidance struct {
	Schema  int    `json:"schema"` // SchemaVersion
	Mission string `json:"mission"`
	Step    int    `json:"step"` // 0 for the guidance that a run starts with
	// From is the ContentID of the step before, which this one replaces; "" at step 0.
	From string `json:"from"`
	// Scaffold stands before the entries. Users write it, and reflection never changes it.
	Scaffold string `json:"scaffold"`
	// Entries are numbered by their position, from 1. Their texts differ.
	Entries []Entry `json:"entries"`
}

// Entry is one rule of the guidance, with how it has fared.
type Entry struct {
	Text     string `json:"text"`      // one line, see normalize
	Hits     int    `json:"hits"`      // right answers that used it
	Misses   int    `json:"misses"`    // wrong answers that used it
	LastUsed int    `json:"last_used"` // the last step in which an answer used it
	Since    int    `json:"since"`     // the step that gave it its present text
}

// maxCount bounds the counts of an entry, so that sums of them can't overflow.
const maxCount = 1 << 50

// New returns step 0 of a mission's guidance. The texts of entries are normalised:
// white space is collapsed and trimmed. An empty list of entries is allowed. A text
// that is empty, has control characters or repeats another one is Invalid.
func New(mission, scaffold string, entries []string) (Guidance, error) {
	g := Guidance{Schema: SchemaVersion, Mission: mission, Scaffold: strings.TrimSpace(scaffold)}
	for i, written := range entries {
		t, bad := normalize(written)
		if bad != nil {
			return Guidance{}, fault.New(fault.Invalid, "guidance of mission %.64q: entry %d: %s", mission, i+1, bad.Message)
		}
		g.Entries = append(g.Entries, Entry{Text: t})
	}
	if err := g.validate(fault.Invalid); err != nil {
		return Guidance{}, err
	}
	return g, nil
}

// Text returns what prompts contain: the scaffold, a blank line, and the entries.
//
//	Judge the ticket by the photos alone.
//
//	1. A photo without a date is not evidence.
//	2. …
//
// It has no line break at its end. What is empty is left out with the blank line.
func (g Guidance) Text() string {
	list := g.list()
	if g.Scaffold == "" || list == "" {
		return g.Scaffold + list
	}
	return g.Scaffold + "\n\n" + list
}

// list returns the numbered entries, each on a line.
func (g Guidance) list() string {
	var b strings.Builder
	for i, e := range g.Entries {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(strconv.Itoa(i + 1))
		b.WriteString(". ")
		b.WriteString(e.Text)
	}
	return b.String()
}

// Encode returns the guidance as JSON, with members in a fixed order, indented, and
// with a line break at its end: the bytes of guidance.json. Equal guidance has equal
// bytes.
func (g Guidance) Encode() []byte { return append(encode(g), '\n') }

// encode returns v, a plain structure, as indented JSON. Bytes that are not UTF-8
// become U+FFFD.
func encode(v any) []byte {
	out, err := json.Marshal(v, jsontext.Multiline(true), jsontext.WithIndent("  "), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic("guidance: " + err.Error()) // a structure of strings and numbers always has an encoding
	}
	return out
}

// Decode reads what Encode returns, and files that users wrote in that form. An error
// says what is wrong; it is Corrupt.
func Decode(b []byte) (Guidance, error) {
	var g Guidance
	if err := json.Unmarshal(b, &g, json.RejectUnknownMembers(true)); err != nil {
		return Guidance{}, fault.New(fault.Corrupt, "guidance: %s", text.Truncate(err.Error(), maxMessage, "…"))
	}
	if err := g.validate(fault.Corrupt); err != nil {
		return Guidance{}, err
	}
	return g, nil
}

// ContentID names the guidance by its encoding.
func (g Guidance) ContentID() identity.ContentID { return identity.Content(g.Encode()) }

// validate returns what is wrong with the guidance, as an error of the kind.
func (g Guidance) validate(kind fault.Kind) error {
	wrong := func(format string, args ...any) error {
		return fault.WithKind(kind, fault.New(kind, format, args...), "guidance of mission %.64q", g.Mission)
	}
	_, named := identity.ParseContentID(g.From)
	switch {
	case g.Schema != SchemaVersion:
		return wrong("schema is %d, and this version of rollout reads %d: use the version that wrote it",
			g.Schema, SchemaVersion)
	case g.Mission == "" || !utf8.ValidString(g.Mission):
		return wrong("mission is empty or not UTF-8: name the mission that the guidance is for")
	case !utf8.ValidString(g.Scaffold):
		return wrong("scaffold is not UTF-8: convert it")
	case g.Step < 0 || g.Step > maxCount:
		return wrong("step is %d: it must be from 0 to %d", g.Step, maxCount)
	case g.Step == 0 && g.From != "":
		return wrong("from is %.80q at step 0: leave it empty", g.From)
	case g.Step > 0 && (!named || strings.ToLower(g.From) != g.From):
		return wrong("from is %.80q: it must be the 64 hex digits of the step before", g.From)
	}
	seen := make(map[string]int, len(g.Entries))
	for i, e := range g.Entries {
		if problem := e.problem(g.Step); problem != "" {
			return wrong("entry %d: %s", i+1, problem)
		}
		if k, ok := seen[foldCase(e.Text)]; ok {
			return wrong("entry %d repeats entry %d: remove one of them", i+1, k)
		}
		seen[foldCase(e.Text)] = i + 1
	}
	return nil
}

// problem returns what is wrong with an entry of the guidance's step; "" if nothing.
func (e Entry) problem(step int) string {
	t, bad := normalize(e.Text)
	switch {
	case bad != nil:
		return bad.Message
	case t != e.Text:
		return fmt.Sprintf("the text has line breaks, needless white space or decomposed characters: write %q",
			text.Truncate(t, maxMessage, "…"))
	case min(e.Hits, e.Misses) < 0 || max(e.Hits, e.Misses) > maxCount:
		return fmt.Sprintf("hits are %d and misses %d: they must be from 0 to %d", e.Hits, e.Misses, maxCount)
	case min(e.LastUsed, e.Since) < 0 || max(e.LastUsed, e.Since) > step:
		return fmt.Sprintf("last_used is %d and since %d: they must be from 0 to the step, %d",
			e.LastUsed, e.Since, step)
	}
	return ""
}

// texts returns the texts of the entries.
func (g Guidance) texts() []string {
	out := make([]string, len(g.Entries))
	for i, e := range g.Entries {
		out[i] = e.Text
	}
	return out
}

// sameTexts reports whether two guidances say the same.
func (g Guidance) sameTexts(o Guidance) bool { return slices.Equal(g.texts(), o.texts()) }
