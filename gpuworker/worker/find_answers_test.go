package worker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/gpuworker/worker"
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
				d := newFixture(t, 1, 1)
				m := inputtest.WithJudge(inputtest.Manifest(2))
				inputtest.Plan(t, d.Ports, m, inputtest.Prompts(0, 4), inputtest.Prompts(4, 2))
				asked := false
				e := &fakeExecutor{onShard: func(s *worker.Shard) {
					if s.Index != c.holder {
						return
					}
					asked = true
					got, err := s.FindAnswers(t.Context())
					if err != nil || got.Found != c.found || string(got.Example) != c.example {
						t.Errorf("got %v, example %s, error %v; want %v, %s", got.Found, got.Example, err, c.found, c.example)
					}
				}}
				d.start("w1", e)
				d.start("w2", e, func(cfg *worker.Config) { cfg.Pool = "judges" })
				d.sendWork(0)
				synctest.Wait()
				done := d.shard(0)
				done.Counts = c.counts
				if c.edit != nil {
					c.edit(&done)
				}
				state := corerun.New(run)
				state.Shards, state.NextShard, state.Items, state.Counts = 3, 3, 6, c.counts
				state.Roles = []corerun.RoleState{{Counts: c.counts}, {}}
				if _, _, err := state.Done.Add(0, 3); err != nil {
					t.Fatal(err)
				}
				if c.resumed != 0 {
					hosttest.Save(t, d.Ports, record.ControlKey(run), record.Control{Schema: record.Schema, Sequence: 2,
						Desired: record.DesiredRun, Refused: "status_401", At: d.shard(0).ClaimedAt.Add(c.resumed)})
				}
				hosttest.Save(t, d.Ports, identity.ShardKey(run, 0), done)
				hosttest.Save(t, d.Ports, record.CoordinatorKey(run), state)

				work := events.Work{Run: string(run), Shard: 1, Row: 1, Pool: "default"}
				if c.holder == 2 {
					work = events.Work{Run: string(run), Shard: 2, Range: 1, Pool: "judges"}
				}
				d.send(host.WorkQueue(work.Pool), work)
				synctest.Wait()
				if !asked {
					t.Fatal("no worker got the shard")
				}
			})
		})
	}
}
