package training

import (
	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/training/dataset"
	"rollout/shared/fault"
)

// supervised is the objective of supervised fine-tuning: the cross-entropy of each
// counted token, given the tokens before it. It implements objective.
type supervised struct {
	back    *model.Backprop
	encoder encoder
	packed  bool
}

func (o *supervised) learn(rows []dataset.Row, g *model.Gradients) (lossStats, error) {
	var sum lossStats
	batch := make([]model.Sequence, len(rows))
	for i, row := range rows {
		x, err := dataset.ParseExample(row.Line)
		if err != nil {
			return sum, changed(row, err)
		}
		var cut bool
		if batch[i], cut, err = o.encoder.example(x); err != nil {
			return sum, changed(row, err)
		}
		if cut {
			sum.cut++
		}
		sum.tokens += len(batch[i].Tokens)
	}
	if o.packed {
		batch = pack(batch, o.encoder.limit)
	}
	var err error
	sum.loss, sum.counted, err = o.back.Loss(batch, 1, g)
	return sum, err
}

// changed returns the fault of a row that was valid when the dataset was opened.
func changed(row dataset.Row, err error) error {
	return fault.WithKind(fault.Invalid, err, "the row in line %d", row.Number)
}
