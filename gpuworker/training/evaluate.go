package training

import (
	"context"

	"rollout/gpuworker/training/dataset"
	"rollout/shared/fault"
)

// evaluated is how many rows an evaluation looks at, the first of the dataset.
const (
	evaluated = 1000
	atOnce    = 16
)

// Evaluation is how a trained model does on the rows that it learned from.
type Evaluation struct {
	Rows      int      `json:"rows"`               // the first of the dataset, at most 1,000
	Truncated int      `json:"cut"`                // of them, that were too long and lost a part
	Loss      float64  `json:"loss"`               // mean over what counts, in nats
	Accuracy  *float64 `json:"accuracy,omitempty"` // part of the pairs of which the chosen answer has the higher reward
}

// Evaluate measures the model as it is. It changes nothing.
func (t *Trainer) Evaluate(ctx context.Context) (Evaluation, error) {
	n := int(min(evaluated, t.rows.Rows()))
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
