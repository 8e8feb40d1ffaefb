// Package examinee is a scripted model for trials: it answers the questions of
// examples/trials.jsonl, sometimes wrongly.
//
// How often it is right depends on how it is asked: with the probability Stepwise if the prompt
// tells it to think step by step, Terse if its system message wants one number and nothing else, and
// Plain otherwise. Only step by step can it answer questions about ages. What it draws depends on
// the question and on the request's seed alone.
//
// The package does no I/O. Functions are safe for concurrent use.
package examinee

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"lukechampine.com/blake3"
)

// The probabilities of a right answer.
const (
	Terse    = 0.55
	Plain    = 0.75
	Stepwise = 0.95
)

// question is a kind of question.
type question struct {
	pattern *regexp.Regexp // its first two groups are numbers
	solve   func(a, b int) int
	ages    bool
}

var questions = []question{
	{regexp.MustCompile(`What is (\d+) \+ (\d+)\?`), func(a, b int) int { return a + b }, false},
	{regexp.MustCompile(`What is (\d+) - (\d+)\?`), func(a, b int) int { return a - b }, false},
	{regexp.MustCompile(`What is (\d+) times (\d+)\?`), func(a, b int) int { return a * b }, false},
	{regexp.MustCompile(`is (\d+) years older than \w+, who is (\d+)\.`), func(a, b int) int { return a + b }, true},
	{regexp.MustCompile(`is twice as old as \w+\. \w+ is (\d+)()\.`), func(a, _ int) int { return 2 * a }, true},
	{regexp.MustCompile(`is (\d+)()\. Ten years ago`), func(a, _ int) int { return a - 10 }, true},
}

// Answer answers the body of a chat request. It returns false for one that asks no question that it
// knows.
func Answer(body []byte) (string, bool) {
	var q struct {
		Seed     int64
		Messages []struct{ Role, Content string }
	}
	if err := json.Unmarshal(body, &q); err != nil || len(q.Messages) == 0 {
		return "", false
	}
	asked := q.Messages[len(q.Messages)-1].Content
	terse := q.Messages[0].Role == "system" && strings.Contains(q.Messages[0].Content, "one number")
	stepwise := strings.Contains(asked, "step by step")
	for _, known := range questions {
		m := known.pattern.FindStringSubmatch(asked)
		if m == nil {
			continue
		}
		a, _ := strconv.Atoi(m[1])
		b, _ := strconv.Atoi(m[2]) // 0 of a question with one number
		right := Plain
		switch {
		case stepwise:
			right = Stepwise
		case known.ages:
			return "I cannot say.", true
		case terse:
			right = Terse
		}
		answer := known.solve(a, b)
		if draw(m[0], q.Seed) >= right {
			answer++
		}
		switch {
		case stepwise:
			return fmt.Sprintf("First I read the numbers.\nThen I do what the question says.\nAnswer: %d", answer), true
		case terse:
			return strconv.Itoa(answer), true
		}
		return fmt.Sprintf("It is %d.", answer), true
	}
	return "", false
}

// draw returns a number from 0 to 1 that depends on the question and the seed.
func draw(question string, seed int64) float64 {
	sum := blake3.Sum256(binary.LittleEndian.AppendUint64([]byte(question), uint64(seed)))
	return float64(binary.LittleEndian.Uint64(sum[:])) / math.MaxUint64
}
