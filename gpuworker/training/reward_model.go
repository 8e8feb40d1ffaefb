package training

import (
	"rollout/gpuworker/tinylm/kernel"
	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/training/dataset"
)

// rewardModel is the objective of reward models, with the loss of Bradley and
// Terry. It implements objective.
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

// sequences returns the two sequences of each pair, the chosen one first.
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

// LogSigmoid returns ln σ(x), computed as min(x, 0) - ln(1 + e^-|x|). In this form
// e^x never overflows and the argument of ln is never zero, so that the result is
// finite for every finite x. It has the same bits on every machine.
func LogSigmoid(x float64) float64 {
	tail := x
	if x > 0 {
		tail = -x
	}
	return min(x, 0) - kernel.Log64(1+kernel.Exp64(tail))
}

// BradleyTerry returns the loss of one pair of rewards, -ln σ(chosen - rejected):
// the negative logarithm of the preference's probability in Bradley and Terry's
// model.
func BradleyTerry(chosen, rejected float64) float64 { return -LogSigmoid(chosen - rejected) }

// BradleyTerryMean returns the mean loss of pairs (chosen, rejected), or 0 if there
// are no pairs.
func BradleyTerryMean(pairs [][2]float64) float64 {
	if len(pairs) == 0 {
		return 0
	}
	sum := 0.0
	for _, p := range pairs {
		sum += BradleyTerry(p[0], p[1])
	}
	return sum / float64(len(pairs))
}

// bradleyTerrySlope returns the derivative of BradleyTerry with respect to the
// chosen reward, -σ(rejected - chosen). The derivative with respect to the rejected
// reward is its negative.
func bradleyTerrySlope(chosen, rejected float64) float64 {
	return -kernel.Exp64(LogSigmoid(rejected - chosen))
}
