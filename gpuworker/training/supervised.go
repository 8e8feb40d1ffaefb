package training

import (
	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/training/dataset"
	"rollout/shared/fault"
)

// supervised is supervised fine-tuning: the cross-entropy of each token that
// counts, given those before it.
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
		batch = packed(batch, o.encoder.limit)
	}
	var err error
	sum.loss, sum.counted, err = o.back.Loss(batch, 1, g)
	return sum, err
}

// changed is about a row that was one when the dataset was opened.
func changed(row dataset.Row, err error) error {
	return fault.WithKind(fault.Invalid, err, "the row in line %d", row.Number)
}
