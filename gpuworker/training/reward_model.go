package training

import (
	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/training/dataset"
)

// rewardModel is reward-model training after Bradley and Terry.
type rewardModel struct {
	back    *model.Backprop
	encoder encoder
	head    *head
}

func (o *rewardModel) learn(rows []dataset.Row, g *model.Gradients) (lossStats, error) {
	batch, sum, err := o.sequences(rows)
	if err != nil {
		return sum, err
	}
	rewards, err := o.back.Rewards(batch, o.head.score)
	if err != nil {
		return sum, err
	}
	slopes := make([]float32, len(rewards))
	for i := 0; i < len(rewards); i += 2 {
		chosen, rejected := float64(rewards[i]), float64(rewards[i+1])
		sum.loss += BradleyTerry(chosen, rejected)
		if chosen > rejected {
			sum.right++
		}
		slope := float32(bradleyTerrySlope(chosen, rejected))
		slopes[i], slopes[i+1] = slope, -slope
	}
	if g == nil {
		return sum, nil
	}
	return sum, o.back.RewardGradient(batch, o.head.score, slopes, g, o.head.gradient)
}

// sequences returns those of each pair, the chosen one first.
func (o *rewardModel) sequences(rows []dataset.Row) ([]model.Sequence, lossStats, error) {
	sum := lossStats{counted: len(rows)}
	batch := make([]model.Sequence, 0, 2*len(rows))
	for _, row := range rows {
		p, err := dataset.ParsePair(row.Line)
		if err != nil {
			return nil, sum, changed(row, err)
		}
		two, cut := o.encoder.pair(p)
		if cut {
			sum.cut++
		}
		sum.tokens += len(two[0].Tokens) + len(two[1].Tokens)
		batch = append(batch, two[0], two[1])
	}
	return batch, sum, nil
}
