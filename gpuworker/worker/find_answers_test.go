package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/gpuworker/worker"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	corerun "rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

// A run has the shards 0 and 1 of users' items, and the shard 2 of its judge. Shard 0 is
// done. The holders of the others find out whether it tells of answers.
func TestFindAnswers(t *testing.T) {
	t.Parallel()
	answered := shard.Counts{OK: 2, PromptTokens: 4}
	for name, c := range map[string]struct {
		counts shard.Counts // of shard 0, in its document and in the coordinator's
		edit   func(*shard.Doc)
		// resumed says when the run was resumed after a refusal, from when shard 0 was
		// claimed; 0: never refused.
		resumed time.Duration
		holder  int // the shard whose holder asks
		found   bool
		example string
	}{
		"answered items":                     {answered, nil, 0, 1, true, `{"prompt":"0"}`},
		"without documents of its shards":    {answered, func(d *shard.Doc) { *d = shard.New(run, 0) }, 0, 1, true, ""},
		"failed items":                       {shard.Counts{Failed: 2, PromptTokens: 4}, nil, 0, 1, false, ""},
		"items that are kept of a parent":    {shard.Counts{OK: 2, Kept: 2}, nil, 0, 1, false, ""},
		"copies of other items":              {shard.Counts{OK: 2}, nil, 0, 1, false, ""},
		"another role":                       {answered, nil, 0, 2, false, ""},
		"answered before a resume":           {answered, nil, time.Minute, 1, false, ""},
		"answered since a resume":            {answered, nil, -time.Minute, 1, true, `{"prompt":"0"}`},
		"begun before a resume, ended later": {answered, func(d *shard.Doc) { d.Attempt = 2 }, -time.Minute, 1, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got, err := findAnswers(t, c.holder, func(d *fixture) {
					done := d.shard(0)
					done.Counts = c.counts
					if c.edit != nil {
						c.edit(&done)
					}
					if c.resumed != 0 {
						d.setResumed(done.ClaimedAt.Add(c.resumed))
					}
					hosttest.Save(t, d.Ports, identity.ShardKey(run, 0), done)
					state := twoRoles(c.counts)
					if _, _, err := state.Done.Add(0, 3); err != nil {
						t.Fatal(err)
					}
					hosttest.Save(t, d.Ports, record.CoordinatorKey(run), state)
				})
				if err != nil || got.Found != c.found || string(got.Example) != c.example {
					t.Errorf("got %v, example %s, error %v; want %v, %s", got.Found, got.Example, err, c.found, c.example)
				}
			})
		})
	}
}

// Another worker holds shard 0 and has saved nothing yet: its heartbeat alone tells of
// answers.
func TestFindAnswersAsksLivingHolders(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answered time.Duration // from the claim of shard 0 to its holder's last answer; 0: it has none
		resumed  time.Duration // as in TestFindAnswers
		holder   int           // the shard whose holder asks
		found    bool
	}{
		"no answer":               {0, 0, 1, false},
		"an answer":               {time.Second, 0, 1, true},
		"of another role":         {time.Second, 0, 2, false},
		"of before a resume":      {time.Second, time.Minute, 1, false},
		"of since a resume":       {2 * time.Minute, time.Minute, 1, true},
		"begun before the resume": {time.Second, -time.Minute, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got, err := findAnswers(t, c.holder, func(d *fixture) {
					held := d.shard(0)
					held.State, held.Worker, held.Result, held.Counts = shard.Running, "w9", nil, shard.Counts{}
					mine := health.HeldShard{Run: run, Shard: 0, Attempt: held.Attempt}
					if c.answered > 0 {
						mine.AnsweredAt = held.ClaimedAt.Add(c.answered)
					}
					if c.resumed != 0 {
						d.setResumed(held.ClaimedAt.Add(c.resumed))
					}
					hosttest.Save(t, d.Ports, identity.ShardKey(run, 0), held)
					hosttest.Save(t, d.Ports, record.HeartbeatKey("w9"), health.Heartbeat{Schema: record.Schema, Worker: "w9",
						Holds: []health.HeldShard{mine}})
					hosttest.Save(t, d.Ports, record.CoordinatorKey(run), twoRoles(shard.Counts{}))
				})
				if err != nil || got.Found != c.found || got.Example != nil {
					t.Errorf("got %v, example %s, error %v; want %v", got.Found, got.Example, err, c.found)
				}
			})
		})
	}
}

// A worker's heartbeat says when its last request was answered, for as long as it holds
// the shard.
func TestHeartbeatSaysWhenARequestWasAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 2)
		began := time.Now()
		d.start("w1", &fakeExecutor{answer: func(ctx context.Context, n int) error {
			if n == 0 {
				time.Sleep(time.Minute)
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}})
		d.sendWork(0)
		for _, c := range []struct{ after, answered time.Duration }{{30 * time.Second, 0}, {time.Hour, time.Minute}} {
			time.Sleep(c.after)
			holds := d.heartbeat("w1").Holds
			if len(holds) != 1 || c.answered == 0 != holds[0].AnsweredAt.IsZero() {
				t.Fatalf("after %s: %+v", c.after, holds)
			}
			if at := holds[0].AnsweredAt; c.answered > 0 && !at.Equal(began.Add(c.answered)) {
				t.Errorf("answered at %s, want %s after %s", at, c.answered, began)
			}
		}
	})
}

// findAnswers returns what the holder of a shard finds out, in a run with the shards 0 and
// 1 of users' items, of which 0 is done, and the shard 2 of its judge. Edit may change the
// documents before.
func findAnswers(t *testing.T, holder int, edit func(*fixture)) (got worker.Answers, err error) {
	d := newFixture(t, 1, 1)
	m := inputtest.WithJudge(inputtest.Manifest(2))
	inputtest.Plan(t, d.Ports, m, inputtest.Prompts(0, 4), inputtest.Prompts(4, 2))
	asked := false
	e := &fakeExecutor{onShard: func(s *worker.Shard) {
		if s.Index == holder {
			asked = true
			got, err = s.FindAnswers(t.Context())
		}
	}}
	d.start("w1", e)
	d.start("w2", e, func(cfg *worker.Config) { cfg.Pool = "judges" })
	d.sendWork(0)
	synctest.Wait()
	edit(d)
	work := events.Work{Run: string(run), Shard: 1, Row: 1, Pool: "default"}
	if holder == 2 {
		work = events.Work{Run: string(run), Shard: 2, Range: 1, Pool: "judges"}
	}
	d.send(host.WorkQueue(work.Pool), work)
	synctest.Wait()
	if !asked {
		t.Fatal("no worker got the shard")
	}
	return got, err
}

// twoRoles is the state of a run whose three shards are sent, of a judge's role, too.
// The counts are those of the users' items.
func twoRoles(c shard.Counts) corerun.State {
	s := corerun.New(run)
	s.Shards, s.NextShard, s.Items, s.Counts = 3, 3, 6, c
	s.Roles = []corerun.RoleState{{Counts: c}, {}}
	return s
}

// setResumed says that the run was refused, and resumed at a time.
func (d *fixture) setResumed(at time.Time) {
	hosttest.Save(d.t, d.Ports, record.ControlKey(run), record.Control{Schema: record.Schema, Sequence: 2,
		Desired: record.DesiredRun, Refused: "status_401", At: at})
}
