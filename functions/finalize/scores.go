package finalize

import (
	"bytes"

	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/record"
)

// scores reads the output rows that pass through it, and sums up their scores.
// It keeps at most one row.
type scores struct {
	totals *grade.Totals
	part   []byte // the beginning of a row whose end has not come yet
}

// Write implements io.Writer.
func (s *scores) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		end := bytes.IndexByte(b, '\n') + 1
		if end == 0 {
			s.part = append(s.part, b...)
			break
		}
		row := b[:end]
		if len(s.part) > 0 {
			s.part = append(s.part, row...)
			row = s.part
		}
		r, err := grade.ReadRow(row)
		if err != nil {
			return 0, fault.Wrap(err, "sum up the scores")
		}
		s.totals.Add(r)
		s.part, b = s.part[:0], b[end:]
	}
	return n, nil
}

// meanScores returns the scores of a summary.
func meanScores(t *grade.Totals) (*record.MeanScore, map[string]record.MeanScore) {
	if t == nil {
		return nil, nil
	}
	byGrader := map[string]record.MeanScore{}
	for name, g := range t.Graders {
		m := meanScore(g)
		m.MissingByCause = g.Missing
		byGrader[name] = m
	}
	all := meanScore(t.Rows)
	return &all, byGrader
}

func meanScore(t grade.Total) record.MeanScore {
	return record.MeanScore{Mean: t.Mean(), Scored: t.Scored, Missing: t.MissingCount()}
}
