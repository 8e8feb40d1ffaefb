package training

import "rollout/gpuworker/tinylm/kernel"

// LogSigmoid is ln σ(x) in its softplus form, min(x, 0) - ln(1 + e^-|x|): e^x
// never overflows and ln never sees zero, so every finite x has a finite
// result. The bits are the same on every machine.
func LogSigmoid(x float64) float64 {
	tail := x
	if x > 0 {
		tail = -x
	}
	return min(x, 0) - kernel.Log64(1+kernel.Exp64(tail))
}

// BradleyTerry is the loss of one pair of rewards: -ln σ(chosen - rejected),
// the negative logarithm of the probability that Bradley and Terry's model
// gives to the preference.
func BradleyTerry(chosen, rejected float64) float64 { return -LogSigmoid(chosen - rejected) }

// BradleyTerryMean is the mean loss of pairs (chosen, rejected); 0 of none.
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

// bradleyTerrySlope is the derivative of BradleyTerry by the chosen reward,
// -σ(rejected - chosen); that by the rejected one is its negative.
func bradleyTerrySlope(chosen, rejected float64) float64 {
	return -kernel.Exp64(LogSigmoid(rejected - chosen))
}
