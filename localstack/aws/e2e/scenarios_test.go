package e2e

import (
	"testing"

	"rollout/localstack/scenarios"
)

// Users have on AWS what they have in every cloud.
func TestScenarios(t *testing.T) {
	t.Parallel()
	scenarios.Run(t, onAWS())
}

// Runs end with the bytes of a laptop whatever disturbs them. Repeat one with
// -args -seed N -rounds 1.
func TestDisturbedRuns(t *testing.T) {
	t.Parallel()
	scenarios.Disturb(t, onAWS(), *seed, *rounds)
}
