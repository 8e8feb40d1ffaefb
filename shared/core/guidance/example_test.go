package guidance_test

import (
	"fmt"

	"rollout/shared/core/guidance"
)

// A reflection improves the guidance of a mission by one step.
func Example() {
	g, err := guidance.New("photos", "Answer pass or fail.", []string{"Look at the cables.", "Be strict."})
	if err != nil {
		panic(err)
	}
	limits := guidance.Limits{Entries: 40, EntryBytes: 600, TotalTokens: 2000, Operations: 8}
	plan, err := guidance.ParsePlan([]byte("```json"+`
		{"operations": [
			{"op": "add", "text": "A photo without a date is no evidence.", "reason": "two were taken for new ones",
			 "evidence": ["g7/fail", "g9/fail"]},
			{"op": "drop", "entries": [2], "reason": "it misled", "evidence": ["g9/fail"]}
		]}
		`+"```"), limits)
	if err != nil {
		panic(err)
	}
	guard := guidance.NewCopyGuard(plan, g)
	if run, copied := guard.Ticket("Photo 1 has no date. Is this mast in order?"); copied {
		panic(run)
	}
	tickets := map[string]bool{"g7/fail": true, "g9/fail": true}
	next, err := g.Apply(plan, guidance.Applying{Limits: limits, Evidence: func(key string) bool { return tickets[key] }})
	if err != nil {
		panic(err)
	}
	fmt.Printf("step %d:\n%s\n", next.Step, next.Text())

	_, err = next.Apply(guidance.Plan{Operations: []guidance.Operation{{Kind: guidance.Drop, Entries: []int{1, 2},
		Reason: "r", Evidence: []string{"g7/fail"}}}}, guidance.Applying{Limits: limits})
	fmt.Println(err)
	// Output:
	// step 1:
	// Answer pass or fail.
	//
	// 1. Look at the cables.
	// 2. A photo without a date is no evidence.
	// empties: no entry would be left
}
