package rollout

import (
	"fmt"
	"testing"

	"rollout/shared/config"
	"rollout/shared/record"
)

// TestStagesAfterTheEndChangeNoFile has a plan that goes on growing after the first call
// has written files, and a second call.
func TestStagesAfterTheEndChangeNoFile(t *testing.T) {
	t.Parallel()
	c := config.DefaultReflection()
	f := newFixture(t, config.Run{Reflection: &c, Gate: &config.Gate{Off: true}},
		ticketLine("a", ""), ticketLine("b", ""))
	outcomes, stages := f.run(2, func(int, string) answer { return answer{text: "yes"} })
	first, err := f.ended(f.blobs, len(outcomes)).Publish(t.Context())
	f.check(err)
	before := f.objects()
	late := stages[len(stages)-1].after(Answering, 0)
	late.Accepted, late.Over = 7, &Record{Mission: twoMissions[0].Name, Result: ResultAccepted}
	_, err = late.save(t.Context(), f.blobs, testRun)
	f.check(err)
	second, err := f.ended(f.blobs, len(outcomes)).Publish(t.Context())
	f.check(err)
	if string(record.Encode(first)) != string(record.Encode(second)) {
		t.Errorf("the second call says\n%+v, not\n%+v", second, first)
	}
	for key, text := range f.objects() {
		if was, known := before[key]; known && was != text {
			t.Errorf("%s has changed", key)
		}
	}
}

// TestFirstStageStands has a stage that was written before by something else: its lines
// are the ones that are asked.
func TestFirstStageStands(t *testing.T) {
	t.Parallel()
	f := newFixture(t, config.Run{Runner: &config.Runner{RolloutBatchSize: 2}}, ticketLine("a", ""), ticketLine("b", ""))
	s := first(f.m, f.book())
	other := s
	other.To, other.Items = 1, 1
	_, err := other.save(t.Context(), f.blobs, testRun)
	f.check(err)
	got, err := s.save(t.Context(), f.blobs, testRun)
	f.check(err)
	if got.To != 1 {
		t.Errorf("the stage that stands ends with ticket %d", got.To)
	}
}

// TestFewLargeGroupsAreNotSetAside counts the tickets that epochs answer of a mission
// whose tickets are in few groups, and that has no gate.
func TestFewLargeGroupsAreNotSetAside(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ groups, answered int }{{1, 300}, {2, 300}, {3, 300}, {10, 270}, {300, 270}} {
		var lines []string
		for n := range 300 {
			lines = append(lines, ticketLine(fmt.Sprintf("g%d", n%tt.groups), fmt.Sprint(n)))
		}
		c := config.DefaultReflection()
		gate := config.DefaultGate()
		gate.Off = true
		f := newFixture(t, config.Run{Reflection: &c, Gate: &gate}, lines...)
		if b := f.book(); b.Tickets != tt.answered {
			t.Errorf("%d groups: %d tickets are answered, want %d: %+v", tt.groups, b.Tickets, tt.answered, b.Pools)
		}
	}
}

// TestAnswersUnderTheBestAskedStepAreHandedOn has runs whose promoted step was made before,
// in and after the last epoch.
func TestAnswersUnderTheBestAskedStepAreHandedOn(t *testing.T) {
	t.Parallel()
	gated := Book{Pools: map[string]Pools{"m": {Gate: Span{0, 1}}}}
	for _, tt := range []struct {
		name     string
		asked    [][2]int // epoch and step of each batch
		promoted int
		want     askedStep
	}{
		{"in the last epoch", [][2]int{{0, 0}, {1, 1}, {1, 2}}, 2, askedStep{1, 2}},
		{"after its last batch", [][2]int{{0, 0}, {1, 1}, {1, 2}}, 3, askedStep{1, 2}},
		{"an earlier step of it", [][2]int{{1, 1}, {1, 2}, {1, 3}}, 2, askedStep{1, 2}},
		{"before it", [][2]int{{0, 1}, {1, 2}, {1, 3}}, 1, askedStep{1, 2}},
	} {
		var steps askedSteps
		for _, b := range tt.asked {
			steps.add(Stage{Epoch: b[0], Guidance: map[string]int{"m": b[1]}})
		}
		got := steps.handedOn(Stage{Book: gated, Guidance: map[string]int{"m": tt.promoted}})["m"]
		if got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
