package examinee_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"rollout/localstack/examinee"
)

func ask(t *testing.T, system, prompt string, seed int) string {
	t.Helper()
	messages := []map[string]string{{"role": "user", "content": prompt}}
	if system != "" {
		messages = append([]map[string]string{{"role": "system", "content": system}}, messages...)
	}
	body, err := json.Marshal(map[string]any{"messages": messages, "seed": seed})
	if err != nil {
		t.Fatal(err)
	}
	answer, ok := examinee.Answer(body)
	if !ok {
		t.Fatalf("it knows nothing of %q", prompt)
	}
	return answer
}

// TestAnswersOfTheExample asks each question of the example often, in each way: the share of right
// answers is about the one that is promised.
func TestAnswersOfTheExample(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../examples/trials.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	right, asked := map[string]int{}, map[string]int{}
	for line := range strings.Lines(string(b)) {
		var task struct {
			Topic, Prompt string
			Answer        int
		}
		if err := json.Unmarshal([]byte(line), &task); err != nil {
			t.Fatal(err)
		}
		for seed := range 400 {
			for way, answer := range map[string]string{
				"plain":    ask(t, "", task.Prompt, seed),
				"terse":    ask(t, "Answer with one number and nothing else.", task.Prompt, seed),
				"stepwise": ask(t, "", task.Prompt+"\n\nThink step by step.", seed),
			} {
				if task.Topic == "age" {
					way += " age"
				}
				asked[way]++
				words := strings.Fields(strings.TrimSuffix(answer, "."))
				if words[len(words)-1] == strconv.Itoa(task.Answer) {
					right[way]++
				}
			}
		}
	}
	for way, want := range map[string]float64{"plain": examinee.Plain, "terse": examinee.Terse,
		"stepwise": examinee.Stepwise, "plain age": 0, "terse age": 0, "stepwise age": examinee.Stepwise} {
		if got := float64(right[way]) / float64(asked[way]); math.Abs(got-want) > 0.03 || asked[way] < 1200 {
			t.Errorf("%s: %v of %d are right, want about %v", way, got, asked[way], want)
		}
	}
}

func TestOtherRequestsAreNotAnswered(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "{}", `{"messages":[]}`, `{"messages":[{"role":"user","content":"Hello"}]}`, "[1]"} {
		if answer, ok := examinee.Answer([]byte(body)); ok {
			t.Errorf("%s is answered with %q", body, answer)
		}
	}
	again := fmt.Sprint(ask(t, "", "What is 1 + 1?", 3), ask(t, "", "What is 1 + 1?", 3))
	if again != strings.Repeat(ask(t, "", "What is 1 + 1?", 3), 2) {
		t.Errorf("one request has two answers: %s", again)
	}
}
