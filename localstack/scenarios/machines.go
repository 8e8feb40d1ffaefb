package scenarios

import (
	"testing"
	"time"

	"rollout/localstack/fakellm"
)

// Without a worker an upload starts machines, which answer it and end when they are idle.
func uploadStartsMachines(t *testing.T, c Cloud) {
	d := deploy(t, c, fakellm.Config{Latency: 20 * time.Millisecond},
		Settings{Machines: 3, FromNone: true, Idle: 2 * time.Second})
	if n := len(d.Machines()); n > 0 {
		t.Errorf("%d machines before there is work", n)
	}
	const key = "prompts/x.jsonl"
	content := MixedPrompts(400)
	id := d.Put(key, content)
	most := 0
	Eventually(t, "the run ends", func() bool {
		most = max(most, len(d.Machines()))
		return d.HasEnded(id)
	})
	WantSame(t, d.AwaitEnd(id), d.Local(key, content))
	if most != 3 {
		t.Errorf("there were at most %d machines, want 3", most)
	}
	Eventually(t, "the machines end", func() bool { return len(d.Machines()) == 0 })
	d.Check()
}

// Of three machines one is lost without a word, and one is preempted: its worker drains and
// ends in good order. The files are a laptop's.
func lostAndPreemptedMachines(t *testing.T, c Cloud) {
	d := deploy(t, c, fakellm.Config{Latency: 20 * time.Millisecond, Spread: 0.8}, Settings{Machines: 3})
	const key = "prompts/x.jsonl"
	content := MixedPrompts(640)
	want := d.Local(key, content)
	Eventually(t, "three machines work", func() bool { return len(d.Machines()) == 3 })
	from, id := d.server.Requests(), d.Put(key, content)
	d.awaitRequests(id, from, 100)
	lost, preempted := d.Machines()[0], d.Machines()[1]
	lost.Kill()
	preempted.Preempt(patience) // the machine goes on until its worker has drained
	if d.HasEnded(id) {
		t.Fatal("the run ended before its machines")
	}
	Eventually(t, "the preempted worker ends", preempted.Ended)
	if !preempted.Finished() {
		t.Error("the preempted worker ended with an error")
	}
	WantSame(t, d.AwaitEnd(id), want)
	d.Check()
}
