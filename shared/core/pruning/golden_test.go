package pruning_test

import (
	"encoding/json"
	"os"
	"testing"
)

// race is a look at a race that golden.py has decided.
type race struct {
	Test, Spending string
	Alpha          float64
	Scores         [][]float64 // by variant and task
	Best           int
	P, Adjusted    []*float64 // by variant; nil of the best one
	Level          float64
	Pruned         []int
}

func golden(t *testing.T) (out []race) {
	t.Helper()
	b, err := os.ReadFile("testdata/golden.json")
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil || len(out) == 0 {
		t.Fatalf("golden.json has %d races: %v", len(out), err)
	}
	return out
}
