package grade

import (
	"encoding/json"
	"slices"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

// Members are the names of the members that graded rows have beside others.
var Members = []string{"score", "scores", "answer_scores"}

// AppendMembers appends the members of an output row with its scores, without a
// comma after the last. answers has, for each answer of the row, the score of
// each grader, in order.
//
//	"score":0.75,"scores":{"correct":{"score":1},"style":{"score":0.5}}
//	"score":null,"scores":{"correct":{"score":1},"style":{"score":null,"cause":"timeout"}}
//
// With several answers, the row has the means over them, and answer_scores has
// the scores of each.
func AppendMembers(dst []byte, graders []config.Grade, answers [][]Score) []byte {
	mean := make([]Score, len(graders))
	for g := range graders {
		mean[g] = meanOf(answers, g)
	}
	dst = appendScores(dst, graders, mean)
	if len(answers) < 2 {
		return dst
	}
	dst = append(dst, `,"answer_scores":[`...)
	for i, scores := range answers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendScores(append(dst, '{'), graders, scores), '}')
	}
	return append(dst, ']')
}

// meanOf returns the mean of one grader's scores over the answers. One missing
// score leaves none, with its cause.
func meanOf(answers [][]Score, grader int) Score {
	sum := 0.0
	for _, scores := range answers {
		s := scores[grader]
		if s.Cause != "" {
			return s
		}
		sum += s.Value
	}
	return Score{Value: sum / float64(len(answers))}
}

// Weighted returns the weighted mean of the scores of all graders. It returns
// false if a grader that has a weight gave no score.
func Weighted(graders []config.Grade, scores []Score) (float64, bool) {
	sum, weights := 0.0, 0.0
	for i, g := range graders {
		if g.Share() == 0 {
			continue
		}
		if scores[i].Cause != "" {
			return 0, false
		}
		sum += g.Share() * scores[i].Value
		weights += g.Share()
	}
	return sum / weights, weights > 0
}

func appendScores(dst []byte, graders []config.Grade, scores []Score) []byte {
	dst = append(dst, `"score":`...)
	if w, ok := Weighted(graders, scores); ok {
		dst = appendNumber(dst, w)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"scores":{`...)
	for i, g := range graders {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(jsonl.AppendString(dst, g.Name), `:{"score":`...)
		if s := scores[i]; s.Cause == "" {
			dst = appendNumber(dst, s.Value)
		} else {
			dst = jsonl.AppendString(append(dst, `null,"cause":`...), string(s.Cause))
		}
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// appendNumber appends a number as encoding/json writes it. Scores are finite.
func appendNumber(dst []byte, x float64) []byte {
	b, _ := json.Marshal(x)
	return append(dst, b...)
}

// Row is the scores of an output row. A nil score is missing.
type Row struct {
	Score  *float64
	Scores map[string]RowScore
}

// RowScore is one grader's score in a row.
type RowScore struct {
	Score *float64 `json:"score"`
	Cause Cause    `json:"cause"`
}

// ReadRow reads the scores of an output row of a graded run. A row without
// scores, or with others than AppendMembers writes, is Corrupt.
func ReadRow(row []byte) (r Row, err error) {
	o := jsonl.ReadObject(row)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		switch string(m.Name) {
		case "score":
			err = json.Unmarshal(m.Value, &r.Score)
		case "scores":
			err = json.Unmarshal(m.Value, &r.Scores)
		}
		if err != nil || r.Scores != nil {
			break
		}
	}
	if err == nil {
		err = o.Err()
	}
	if err == nil && r.Scores == nil {
		err = fault.New(fault.Corrupt, "it has no scores")
	}
	return r, fault.WithKind(fault.Corrupt, err, "read the scores of a row")
}

// ReadScores reads the scores of an output row that AppendMembers wrote: for each answer
// of the row the score of each grader. A row without them is Corrupt.
func ReadScores(row []byte, graders []config.Grade) ([][]Score, error) {
	type scores struct{ Scores map[string]RowScore }
	var one scores
	var all []scores
	o := jsonl.ReadObject(row)
	var err error
	for m, ok := o.Next(); ok && err == nil; m, ok = o.Next() {
		switch string(m.Name) {
		case "scores":
			err = json.Unmarshal(m.Value, &one.Scores)
		case "answer_scores":
			err = json.Unmarshal(m.Value, &all)
		}
	}
	if err == nil {
		err = o.Err()
	}
	if len(all) == 0 {
		all = []scores{one}
	}
	out := make([][]Score, len(all))
	for k, a := range all {
		for _, g := range graders {
			s, ok := a.Scores[g.Name]
			if err == nil && (!ok || (s.Score == nil) == (s.Cause == "")) {
				err = fault.New(fault.Corrupt, "it has no score of the grader %s", g.Name)
			}
			if s.Score != nil {
				out[k] = append(out[k], Score{Value: *s.Score})
			} else {
				out[k] = append(out[k], Missing(s.Cause))
			}
		}
	}
	if err != nil {
		return nil, fault.WithKind(fault.Corrupt, err, "read the scores of a row")
	}
	return out, nil
}

// AppendRescored appends an output row with other scores in the place of those that it
// has. ReadScores has read the row before.
func AppendRescored(dst, row []byte, graders []config.Grade, answers [][]Score) []byte {
	dst = append(dst, '{')
	o := jsonl.ReadKnownObject(row)
	first, written := true, false
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		own := slices.Contains(Members, string(m.Name))
		if own && written {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		if own {
			dst, written = AppendMembers(dst, graders, answers), true
			continue
		}
		dst = append(append(append(dst, m.RawName...), ':'), m.Value...)
	}
	return append(dst, '}', '\n')
}
