package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"rollout/gpuworker/engine"
	"rollout/localstack/rounds"
	"rollout/shared/config"
	"rollout/shared/core/ratelimit"
	"rollout/shared/core/run"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/grade/judge"
	"rollout/shared/record"
)

// drawJudging draws whether a judge reads the answers of a batch, in a third of them. A
// world with a limit has one pool.
func (w *world) drawJudging() bool {
	return w.rounds == 0 && w.constraints.row == 0 && w.http == nil && w.limit.Amount == (ratelimit.Amount{}) &&
		w.rand.intN("judging", 3) == 0
}

// judgeName is the name of the grader that judges.
const judgeName = "style"

// judgeMark begins what the judge is asked.
const judgeMark = "How good is this? "

// judgeGrader is the grader of worlds with a judge.
func judgeGrader() config.Grade {
	return config.Grade{Name: judgeName, Kind: config.GradeJudge, Model: rounds.JudgeModel, Prompt: judgeMark + "{answer}",
		Extract: `Score: (\d+)`, Range: []float64{0, 8}}
}

// judgeSays is what the judge says of an answer, which depends only on it. It refuses to
// read some, and says of some what is no score.
func judgeSays(answer string) (text string, refuses bool) {
	switch n := sumOf(answer); n % 8 {
	case 1:
		return "", true
	case 3:
		return fmt.Sprintf("I can't say. %d of 10?", n%10), false
	case 5:
		return "Score: 9", false
	default:
		return fmt.Sprintf("It has %d letters. Score: %d", len(answer), n%9), false
	}
}

func sumOf(text string) (n int) {
	for _, b := range []byte(text) {
		n = (n*31 + int(b)) % 9973
	}
	return n
}

// trueVerdict is the score of an answer, or the cause why it has none.
func trueVerdict(answer string) grade.Score {
	text, refuses := judgeSays(answer)
	if refuses {
		return grade.Missing(grade.JudgeFailed)
	}
	if found := regexp.MustCompile(`Score: (\d+)$`).FindStringSubmatch(text); found != nil && found[1] != "9" {
		n, err := strconv.Atoi(found[1])
		if err == nil {
			return grade.Score{Value: float64(n) / 8}
		}
	}
	return grade.Missing(grade.Unparseable)
}

// judgedAnswer returns the answer that a request asks the judge about.
func judgedAnswer(r engine.Request) (answer string, ok bool) {
	var q struct{ Messages []struct{ Content string } }
	if !bytes.Contains(r.Body, []byte(judgeMark)) || json.Unmarshal(r.Body, &q) != nil || len(q.Messages) != 1 {
		return "", false
	}
	return strings.CutPrefix(q.Messages[0].Content, judgeMark)
}

// judgeAnswer is the engine's answer to a request that asks the judge.
func judgeAnswer(about string) (engine.Answer, error) {
	text, refuses := judgeSays(about)
	if refuses {
		return engine.Answer{}, &fault.Error{Kind: fault.Invalid, Class: fault.Refused,
			Err: fault.New(fault.Invalid, "the judge does not read that")}
	}
	return engine.Answer{Text: text, FinishReason: "stop", Usage: engine.Usage{PromptTokens: 5, CompletionTokens: 3}}, nil
}

// openScore is an answered item whose answer the judge reads.
type openScore struct {
	item   uint64
	answer string
}

// noteOpenScore notes that the judge reads the answer in the item's output row.
func (s *scenario) noteOpenScore(item uint64, row []byte) {
	if !s.judging {
		return
	}
	texts, err := dialect.ReadAnswers(dialect.Plain, row)
	if err != nil {
		s.t.Fatal(err)
	}
	s.verdicts = append(s.verdicts, openScore{item, texts[0]})
}

// asked returns what the judge must have been asked, behind index items; no lines if the
// plan must not have grown.
func (s *scenario) asked(m record.Manifest, input int, index uint64, st run.State) (f file) {
	if input != s.inputs || st.Reason != run.ReasonDone && index >= st.Items {
		return f
	}
	j, err := judge.New(judgeGrader())
	if err != nil {
		s.t.Fatal(err)
	}
	f.key = m.InputName(input)
	for n, v := range s.verdicts {
		b := j.AppendLine(nil, judge.Ref{Item: v.item}, grade.Case{Answer: v.answer})
		f.lines = append(f.lines, line{number: n + 1, bytes: bytes.TrimSuffix(b, []byte("\n")), role: 1})
	}
	return f
}

// refusedVerdicts counts the answers that the judge refuses to read.
func (s *scenario) refusedVerdicts() (n uint64) {
	for _, v := range s.verdicts {
		if trueVerdict(v.answer).Cause == grade.JudgeFailed {
			n++
		}
	}
	return n
}
