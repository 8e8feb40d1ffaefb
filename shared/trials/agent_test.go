package trials

import "testing"

// S4-19: an agent sees its question and what its variant shows, and nothing that graders expect.
func TestTaskFileHasNothingThatGradersExpect(t *testing.T) {
	t.Parallel()
	const trial = `,"trial":{"task":"q"},"task":{"id":"q","topic":"sums","answer":"4","tests":["hidden"]}}`
	for line, want := range map[string]string{
		`{"id":"t","messages":[{"role":"user","content":"2+2"}],"seed":7` + trial: `{"id":"q","prompt":"2+2",` +
			`"messages":[{"role":"user","content":"2+2"}],"topic":"sums"}`,
		`{"id":"t","messages":[{"role":"system","content":"s"},{"role":"user","content":"u"}]` + trial: `{"id":"q",` +
			`"messages":[{"role":"system","content":"s"},{"role":"user","content":"u"}],"topic":"sums"}`,
	} {
		got, err := TaskFile([]byte(line), []string{"topic"})
		if err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	if _, err := TaskFile([]byte(`{"id":"t"}`), nil); err == nil {
		t.Error("a line of no trial has a task")
	}
}
