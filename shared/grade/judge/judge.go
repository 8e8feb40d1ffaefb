// Package judge asks a model for the score of an answer.
//
//	prompt, answer, expected ─▶ AppendLine ─▶ item of the run ─▶ the judge's row ─▶ Score
//
// A Judge is made of a [[grade]] table of the kind judge. It writes a line of the plain
// dialect for each answer, which is asked like any other item, under an id that says
// which answer it is about. It then reads the score from the row of that item.
//
// What a line shows of a prompt or an answer is text in a JSON string: nothing in it
// is read as a placeholder or as JSON. The package does no I/O. The same answer gets the
// same line everywhere (I10).
package judge

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/grade/rules"
	"rollout/shared/jsonl"
	"rollout/shared/text"
)

// Judge is one grader of the kind judge. It is safe for concurrent use.
type Judge struct {
	system, prompt text.Template
	rubric         string
	verdict        rules.Verdict
}

// New returns the judge of a grader. One whose texts or expressions are faulty is
// Invalid, as the config's check has it.
func New(g config.Grade) (*Judge, error) {
	verdict, err := rules.NewVerdict(g)
	if err != nil {
		return nil, err
	}
	places := config.Placeholders()
	return &Judge{system: text.ParseTemplate(g.System, places), prompt: text.ParseTemplate(g.Prompt, places),
		rubric: g.Rubric, verdict: verdict}, nil
}

// Ref names an answer of a run: an item by its index, and one of its answers.
type Ref struct {
	Item   uint64
	Answer int
}

// Compare orders references as the lines of a judge are ordered.
func (r Ref) Compare(o Ref) int {
	return cmp.Or(cmp.Compare(r.Item, o.Item), cmp.Compare(r.Answer, o.Answer))
}

// String returns the id of the line about the answer. Example: "17/0".
func (r Ref) String() string { return fmt.Sprintf("%d/%d", r.Item, r.Answer) }

// ParseRef parses what String returns.
func ParseRef(id []byte) (r Ref, err error) {
	item, answer, _ := strings.Cut(string(id), "/")
	r.Item, err = strconv.ParseUint(item, 10, 64)
	if err == nil {
		r.Answer, err = strconv.Atoi(answer)
	}
	if err != nil || r.Answer < 0 || r.String() != string(id) {
		return Ref{}, fault.New(fault.Corrupt, "%.64q is not the id of a judge's line", id)
	}
	return r, nil
}

// AppendLine appends the line that asks about an answer. An answer and a prompt that
// together are longer than a line may be make a line that fails as invalid.
func (j *Judge) AppendLine(dst []byte, r Ref, c grade.Case) []byte {
	begin := len(dst)
	dst = jsonl.AppendString(append(dst, `{"id":`...), r.String())
	head := len(dst)
	values := j.values(c)
	if n := j.system.Size(values) + j.prompt.Size(values); n > jsonl.MaxLine { // built not even once
		return appendTooLong(dst, n)
	}
	dst = append(dst, `,"messages":[`...)
	if !j.system.Empty() {
		dst = append(dst, `{"role":"system","content":`...)
		dst = append(jsonl.AppendString(dst, j.system.Render(values)), '}', ',')
	}
	dst = append(dst, `{"role":"user","content":`...)
	dst = append(jsonl.AppendString(dst, j.prompt.Render(values)), "}]}\n"...)
	if n := len(dst) - begin; n > jsonl.MaxLine {
		return appendTooLong(dst[:head], n)
	}
	return dst
}

// appendTooLong ends a line that would have n bytes. It keeps its id, which says what it
// is about.
func appendTooLong(dst []byte, n int) []byte {
	return fmt.Appendf(dst, `,"messages":"the question about this answer has %d bytes"}`+"\n", n)
}

// Said is an answer of a judge. Cut says that it was cut before the judge ended it.
type Said struct {
	Text string
	Cut  bool
}

// Score returns the score that the judge's answers say: their mean, if there are
// several. One without a score leaves none.
func (j *Judge) Score(answers []Said) grade.Score {
	sum := 0.0
	for _, a := range answers {
		s := j.verdict(a.Text, a.Cut)
		if s.Cause != "" {
			return s
		}
		sum += s.Value
	}
	if len(answers) == 0 {
		return grade.Missing(grade.Unparseable)
	}
	return grade.Score{Value: sum / float64(len(answers))}
}
