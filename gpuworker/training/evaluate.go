package training

import (
	"context"

	"rollout/gpuworker/training/dataset"
	"rollout/shared/fault"
)

const (
	evaluatedRows = 1000 // maximum number of rows of an evaluation, from the start of the dataset
	atOnce        = 16   // rows evaluated together
)

// Evaluation is the result of Evaluate.
type Evaluation struct {
	Rows      int     `json:"rows"` // number of evaluated rows
	Truncated int     `json:"cut"`  // number of these rows that were truncated
	Loss      float64 `json:"loss"` // mean over the counted tokens or pairs, in nats
	// Accuracy is the share of pairs whose chosen answer has the higher reward; nil
	// unless a reward model is trained.
	Accuracy *float64 `json:"accuracy,omitempty"`
}

// Evaluate computes the current model's loss on the first rows of the training
// data, at most 1,000. It changes nothing.
func (t *Trainer) Evaluate(ctx context.Context) (Evaluation, error) {
	n := int(min(evaluatedRows, t.rows.Rows()))
	var sum lossStats
	for first := 0; first < n; first += atOnce {
		if err := ctx.Err(); err != nil {
			return Evaluation{}, fault.WithKind(fault.Canceled, err, "evaluate the model")
		}
		rows := make([]dataset.Row, min(atOnce, n-first))
		for i := range rows {
			var err error
			if rows[i], err = t.rows.Row(uint64(first + i)); err != nil {
				return Evaluation{}, err
			}
		}
		part, err := t.objective.learn(rows, nil)
		if err != nil {
			return Evaluation{}, fault.Wrap(err, "evaluate the model")
		}
		sum.add(part)
	}
	e := Evaluation{Rows: n, Truncated: sum.cut, Loss: sum.loss / float64(sum.counted)}
	if t.head != nil {
		accuracy := float64(sum.right) / float64(n)
		e.Accuracy = &accuracy
	}
	return e, nil
}
