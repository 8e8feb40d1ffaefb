package report

import (
	"rollout/shared/core/selection"
	"rollout/shared/rollout"
)

// sums are what is summed up over tickets and their answers.
type sums struct {
	Tickets   int
	Review    int // tickets that a person shall look at
	Selected  int // tickets with a selected verdict
	Agreement float64
	Labelled  int // tickets with a label that were answered
	Right     int // of these, the ones whose selected verdict equals it
	Answers   int // with a verdict, or with none that can be read
	Scored    int // of these, the ones with a score
	Score     float64
	Prompt    int64 // tokens
	Answer    int64
}

// ticket adds a row of selections.jsonl.
func (s *sums) ticket(row rollout.Selected) {
	s.Tickets++
	if row.Review != "" {
		s.Review++
	}
	if row.Verdict == nil {
		if row.Label != nil && row.Failed[selection.Unparsable] > 0 { // it was answered, and not rightly
			s.Labelled++
		}
		return
	}
	s.Selected++
	s.Agreement += row.Agreement
	if row.LabelMatch == nil {
		return
	}
	s.Labelled++
	if *row.LabelMatch {
		s.Right++
	}
}

// answer adds a row of trajectories.jsonl, or one of failures.jsonl about an answer that can't be read.
func (s *sums) answer(row answerRow) {
	s.Answers++
	s.Prompt += row.Usage.Prompt
	s.Answer += row.Usage.Completion
	if row.Score != nil {
		s.Scored++
		s.Score += *row.Score
	}
}

func (s *sums) add(o sums) {
	s.Tickets += o.Tickets
	s.Review += o.Review
	s.Selected += o.Selected
	s.Agreement += o.Agreement
	s.Labelled += o.Labelled
	s.Right += o.Right
	s.Answers += o.Answers
	s.Scored += o.Scored
	s.Score += o.Score
	s.Prompt += o.Prompt
	s.Answer += o.Answer
}

// Accuracy returns the share of the labelled verdicts that are right; nil without one.
func (s sums) Accuracy() *float64 { return ratio(float64(s.Right), s.Labelled) }

// MeanAgreement returns the mean agreement of the tickets with a selection; nil without one.
func (s sums) MeanAgreement() *float64 { return ratio(s.Agreement, s.Selected) }

// MeanScore returns the mean score of the answers with one; nil without one.
func (s sums) MeanScore() *float64 { return ratio(s.Score, s.Scored) }

// TokensPerAnswer returns the mean length of answers in tokens; nil without one.
func (s sums) TokensPerAnswer() *float64 { return ratio(float64(s.Answer), s.Answers) }

func ratio(sum float64, n int) *float64 {
	if n == 0 {
		return nil
	}
	mean := sum / float64(n)
	return &mean
}

// maxBins bounds the sums of a series.
const maxBins = 256

// series has sums by number, such as those of each batch. When a number is beyond maxBins, neighbours are joined: then
// each sum is over width numbers.
type series struct {
	width int
	bins  []sums
}

// at returns the sums of number n, from 0. The pointer is valid until the next call.
func (s *series) at(n int) *sums {
	s.width = max(s.width, 1)
	for n/s.width >= maxBins {
		joined := make([]sums, (len(s.bins)+1)/2)
		for i, b := range s.bins {
			joined[i/2].add(b)
		}
		s.width, s.bins = s.width*2, joined
	}
	for len(s.bins) <= n/s.width {
		s.bins = append(s.bins, sums{})
	}
	return &s.bins[n/s.width]
}

// span returns the first and the last number of a bin.
func (s *series) span(bin int) (from, to int) { return bin * s.width, (bin+1)*s.width - 1 }
