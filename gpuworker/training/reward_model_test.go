package training

import (
	"math"
	"testing"
)

// TestBradleyTerryHasTheDocumentedValues checks the values that the product's
// first description lists.
func TestBradleyTerryHasTheDocumentedValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name              string
		got, want, within float64
	}{
		{"no difference", BradleyTerry(1, 1), math.Ln2, 1e-12},
		{"strong preference", BradleyTerry(5, -5), 0, 1e-3},
		{"inverted preference", BradleyTerry(-5, 5), 10, 1e-3},
		{"mixed batch", BradleyTerryMean([][2]float64{{2, 1}, {1, 2}}), 0.8133, 1e-4},
		{"empty batch", BradleyTerryMean(nil), 0, 0},
		{"logsigmoid(50)", LogSigmoid(50), 0, 1e-4},
		{"logsigmoid(-50)", LogSigmoid(-50), -50, 1e-4},
		{"logsigmoid(1000)", LogSigmoid(1000), 0, 1e-4},
		{"logsigmoid(-1000)", LogSigmoid(-1000), -1000, 1e-4},
		{"slope at no difference", bradleyTerrySlope(3, 3), -0.5, 1e-12},
		{"slope at a strong preference", bradleyTerrySlope(400, -400), 0, 1e-12},
		{"slope at an inverted preference", bradleyTerrySlope(-400, 400), -1, 1e-12},
	} {
		if !(math.Abs(c.got-c.want) <= c.within) { // also true for NaN
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
}

func TestSlopeAgreesWithFiniteDifferences(t *testing.T) {
	t.Parallel()
	const h = 1e-6
	for d := -20.0; d <= 20; d += 0.37 {
		want := (BradleyTerry(d+h, 0) - BradleyTerry(d-h, 0)) / (2 * h)
		if got := bradleyTerrySlope(d, 0); math.Abs(got-want) > 1e-8 {
			t.Errorf("at a difference of %v: %v, want %v", d, got, want)
		}
	}
}
