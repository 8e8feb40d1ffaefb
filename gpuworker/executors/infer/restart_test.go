package infer_test

import (
	"fmt"
	"testing"
	"time"

	"rollout/shared/core/identity"
	corerun "rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// restartMatrix is a run of 16 items in which a first worker has answered the items of
// shard 0, and the even ones of a shard of all. Its end leaves those that the server
// refuses for a second worker, which knows nothing of the answers.
type restartMatrix struct {
	*matrix
	shard int // that is left
}

func isEven(prompt string) bool { return prompt != "" && (prompt[len(prompt)-1]-'0')%2 == 0 }

// eachRestart runs the test where the answers are in the checkpoint of the shard that is
// left, and where they are in another shard; with a server that answers chats, and so
// small questions, and one that does not.
func eachRestart(t *testing.T, test func(m *restartMatrix, refuse func(when func(prompt string) bool))) {
	for _, checkpoint := range []bool{true, false} {
		for _, chats := range []bool{true, false} {
			t.Run(fmt.Sprintf("checkpoint %v, chats %v", checkpoint, chats), func(t *testing.T) {
				t.Parallel()
				size := 16
				if !checkpoint {
					size = 8
				}
				withMatrix(t, 16, size, 1, false, badAnswers["403"], func(m *matrix) {
					s := m.servers[0]
					refuse := func(when func(string) bool) {
						s.mu.Lock()
						defer s.mu.Unlock()
						s.meets = func(prompt string) bool { return prompt == "hi" && !chats || when(prompt) }
					}
					r := &restartMatrix{matrix: m}
					end := m.startWorker("first")
					m.send(0)
					if checkpoint {
						refuse(func(prompt string) bool {
							if !isEven(prompt) {
								time.Sleep(10 * time.Second) // longer than the first worker lives
							}
							return !isEven(prompt)
						})
						advance(time.Second)
						end()
						advance(10 * time.Second)
					} else {
						r.shard = 1
						r.await()
						end()
						state := corerun.New(run)
						state.Shards, state.NextShard, state.Items, state.Counts.OK = 2, 2, 16, 8
						_, _, err := state.Done.Add(0, 2)
						if err != nil {
							t.Fatal(err)
						}
						hosttest.Save(t, m.Ports, record.CoordinatorKey(run), state)
					}
					test(r, refuse)
				})
			})
		}
	}
}

// A worker that is restarted gets the items that the server refuses, since the others are
// answered. It does not take that for a run of which no request is answered: the items
// are charged.
func TestRestartedWorkerChargesItemsThatAreLeft(t *testing.T) {
	t.Parallel()
	eachRestart(t, func(m *restartMatrix, refuse func(func(string) bool)) {
		refuse(func(prompt string) bool {
			if m.shard == 0 {
				return prompt != "hi" && !isEven(prompt)
			}
			return prompt != "hi" && isLate(prompt)
		})
		defer m.startWorker("second")()
		m.send(m.shard)
		if d := m.awaitShard(m.shard); d.Counts.Failed != 8 {
			m.t.Errorf("counts %+v, want 8 failed items", d.Counts)
		}
		if refused := (&fixture{Ports: m.Ports, t: m.t}).events(); len(refused) > 0 {
			m.t.Errorf("events %+v", refused)
		}
	})
}

// isLate reports whether the prompt is of one of the items from 8 on.
func isLate(prompt string) bool { return len(prompt) == 2 || prompt >= "8" }

// A setting that breaks while a worker is restarted pauses the run, after a minute and
// few requests. No item is charged.
func TestRestartedWorkerPausesRunWhoseSettingBroke(t *testing.T) {
	t.Parallel()
	eachRestart(t, func(m *restartMatrix, refuse func(func(string) bool)) {
		refuse(func(string) bool { return true })
		before, _ := m.requests()
		defer m.startWorker("second")()
		m.send(m.shard)
		d := &fixture{Ports: m.Ports, t: m.t}
		advance(55 * time.Second)
		if refused := d.events(); len(refused) > 0 {
			m.t.Errorf("too early: %+v", refused)
		}
		advance(40 * time.Second)
		if refused := d.events(); len(refused) == 0 || refused[0].Outcome != "status_403" {
			m.t.Errorf("events %+v, want the refusal", refused)
		}
		if items, _ := m.requests(); items-before > 40 {
			m.t.Errorf("%d requests, want at most 40", items-before)
		}
		if doc := hosttest.Load[shard.Doc](m.t, m.Ports, identity.ShardKey(run, m.shard)); doc.Counts.Failed > 0 {
			m.t.Errorf("the shard is %+v", doc)
		}
	})
}
