package rollout

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"rollout/shared/blob"
	"rollout/shared/core/guidance"
	"rollout/shared/core/identity"
	"rollout/shared/core/selection"
	"rollout/shared/fault"
	"rollout/shared/text"
)

// pending are cases of a mission that no reflection has looked at, in their order.
type pending struct {
	Count int         `json:"count"`
	Parts []casesPart `json:"parts"`
}

// casesPart is a part of the cases of a batch: the next Count lines from Offset on.
type casesPart struct {
	Input  int   `json:"input"` // the batch
	Offset int64 `json:"offset"`
	Count  int   `json:"count"`
}

// casesKey returns the key of the cases of a batch and a mission: a line each.
func casesKey(run identity.RunID, input int, mission string) string {
	return key(run, fmt.Sprintf("cases/%06d/%s.jsonl", input, mission))
}

// take reads the first cases, at most limit, and returns the rest.
func (p pending) take(ctx context.Context, blobs blob.Store, run identity.RunID, mission string, limit int) (
	cases []Case, rest pending, err error) {
	rest = p
	for len(cases) < limit && len(rest.Parts) > 0 {
		part := rest.Parts[0]
		some, length, err := readCases(ctx, blobs, casesKey(run, part.Input, mission), part.Offset,
			min(part.Count, limit-len(cases)))
		if err != nil {
			return nil, p, err
		}
		cases = append(cases, some...)
		rest.Count -= len(some)
		if part.Count -= len(some); part.Count == 0 {
			rest.Parts = rest.Parts[1:]
			continue
		}
		part.Offset += length
		rest.Parts = append([]casesPart{part}, rest.Parts[1:]...)
	}
	return cases, rest, nil
}

// readCases reads count lines from an offset on, and returns their length.
func readCases(ctx context.Context, blobs blob.Store, key string, offset int64, count int) (
	cases []Case, length int64, err error) {
	r, _, err := blobs.Get(ctx, key, blob.GetOptions{Offset: offset})
	if err != nil {
		return nil, 0, fault.Wrap(err, "read %s", key)
	}
	defer r.Close()
	lines := bufio.NewReaderSize(r, bufferSize)
	for range count {
		line, err := readLine(lines)
		var c Case
		if err == nil {
			err = json.Unmarshal(line, &c)
		}
		if err == io.EOF || err != nil {
			return nil, 0, fault.WithKind(fault.Corrupt, err, "read the cases in %s", key)
		}
		cases, length = append(cases, c), length+int64(len(line))+1
	}
	return cases, length, nil
}

// reasons say for which lesson a ticket was chosen.
var reasons = map[selection.Lesson]string{
	selection.LabelMismatch: "the selected verdict contradicts the right answer",
	selection.Conflict:      "several verdicts have the most votes",
	selection.Mixed:         "some answers are right, or score better than others",
}

// caseOf returns what reflection sees of a ticket.
func caseOf(g Group, t ticketAt) Case {
	return Case{Key: ticketID(t.number), Group: t.Group, Offset: t.offset, Length: t.length,
		Case: guidance.Case{Content: shorten(contentOf(t.Ticket), maxShownTicket), Label: t.Label,
			Why: reasons[g.selection.Teaches], Answers: answersOf(g)}}
}

// places returns where the tickets of a reflection stand.
func (r Reflection) places() (out []place, err error) {
	for _, c := range r.Cases {
		number, err := strconv.ParseUint(strings.TrimPrefix(c.Key, "t"), 10, 32)
		if err != nil {
			return nil, fault.WithKind(fault.Corrupt, err, "the ticket %.64q of a reflection", c.Key)
		}
		out = append(out, place{c.Offset, c.Length, uint32(number)})
	}
	return out, nil
}

// answersOf returns what reflection sees of the answers to a ticket.
func answersOf(g Group) (out []guidance.Answer) {
	at := map[string]int{} // of the answers that say the same
	for n, m := range g.members {
		if m.class != "" {
			continue
		}
		said := strconv.FormatBool(m.parsed) + m.verdict + outcomeOf(g, n)
		if k, known := at[said]; known {
			out[k].Times++
			continue
		}
		if len(out) == guidance.MaxShownAnswers {
			continue
		}
		at[said] = len(out)
		out = append(out, guidance.Answer{Text: shorten(m.text, maxShownAnswer), Outcome: outcomeOf(g, n), Times: 1})
	}
	return out
}

// contentOf returns the text of a ticket.
func contentOf(t Ticket) string {
	if t.Messages != nil {
		return string(t.Messages)
	}
	return t.Content
}

// Bounds of the texts of a case, in bytes: more than a prompt shows of them. A reflection
// keeps its cases in its stages, where a byte may take six as an escape.
const (
	maxShownTicket = 8 << 10
	maxShownAnswer = 2 << 10
)

func shorten(s string, limit int) string { return text.Truncate(s, limit, "") }

// outcomeOf says how good an answer is.
func outcomeOf(g Group, n int) string {
	m := g.members[n]
	switch {
	case !m.parsed:
		return "unreadable"
	case g.label != "" && m.verdict == g.label:
		return "right"
	case g.label != "":
		return "wrong"
	case m.score != nil:
		return "score " + strconv.FormatFloat(*m.score, 'g', 3, 64)
	}
	return "unknown"
}

// cited matches the number of an entry that an answer names.
var cited = regexp.MustCompile(`\[(\d{1,3})\]`)

// maxCited bounds the text that is searched, in bytes.
const maxCited = 64 << 10

// count adds the entries that the answers of a ticket name, which have a score.
func (u entryUsage) count(g Group) {
	for _, m := range g.members {
		if m.score == nil {
			continue
		}
		seen := map[int]bool{}
		for _, found := range cited.FindAllStringSubmatch(m.text[:min(len(m.text), maxCited)], -1) {
			n, err := strconv.Atoi(found[1])
			if err != nil || seen[n] {
				continue
			}
			seen[n] = true
			tally := u[n]
			if *m.score >= rightFrom {
				tally.Hits++
			} else {
				tally.Misses++
			}
			u[n] = tally
		}
	}
}

// rightFrom is the score from which on an answer counts as right.
const rightFrom = 0.5

// lessons writes the cases of a batch while it is read.
type lessons struct {
	ctx   context.Context
	blobs blob.Store
	run   identity.RunID
	input int
	files map[string]*object
	count map[string]int
}

func (l *lessons) add(mission string, c Case) error {
	f := l.files[mission]
	if f == nil {
		f = open(l.ctx, l.blobs, casesKey(l.run, l.input, mission))
		l.files[mission] = f
	}
	l.count[mission]++
	_, err := f.Write(append(encode(c), '\n'))
	return err
}

// finish completes the files, or drops them if err is not nil.
func (l *lessons) finish(err error) error {
	for _, mission := range sortedKeys(l.files) {
		if e := l.files[mission].finish(err); err == nil {
			err = e
		}
	}
	return err
}
