package api_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/functions/api"
	"rollout/functions/status"
	"rollout/functions/status/statustest"
	"rollout/shared/blob"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/queue"
)

// deniedBlobs is a bucket with an object that this user may not read, and one that a
// program writes.
type deniedBlobs struct {
	blob.Store
	key string
}

func (l deniedBlobs) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	if key == l.key {
		return nil, blob.Info{}, fault.New(fault.Denied, "permission denied")
	}
	return l.Store.Get(ctx, key, o)
}

// Unsettled says that a program writes the object of that name.
func (l deniedBlobs) Unsettled(_ context.Context, key string) (string, error) {
	if key == "prompts/written.jsonl" {
		return "cat (process 7) has it open for writing", nil
	}
	return "", nil
}

func TestOverviewListsUploadsThatAreNotRuns(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	for _, key := range []string{
		"prompts/known.jsonl", "prompts/known.toml", "prompts/new.jsonl",
		"prompts/x.csv", "prompts/locked.jsonl", "prompts/written.jsonl", "runs/x.jsonl",
		"prompts/x.jsonl.part", "prompts/x.csv.tmp",
	} {
		info, err := d.ports.Blobs.Put(t.Context(), key, strings.NewReader("{}\n"), putOptions)
		if err != nil {
			t.Fatal(err)
		}
		if key == "prompts/known.jsonl" {
			d.submitted(identity.UploadRun("local", key, info.Version), run.Completed)
		}
	}
	d.ports.Blobs = deniedBlobs{d.ports.Blobs, "prompts/locked.jsonl"}
	s := api.New(d.ports, config.DefaultDeployment(), cloud.OneMachine())
	o, err := s.Overview(t.Context(), status.Page{Limit: 20})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, u := range o.Uploads {
		got[u.Key] = u.Why
	}
	for key, want := range map[string]string{
		"prompts/new.jsonl": "not a run yet", "prompts/x.csv": "rollout convert x.csv x.jsonl",
		"prompts/locked.jsonl":  "it can't be read: permission denied",
		"prompts/written.jsonl": "cat (process 7) has it open for writing",
	} {
		if !strings.Contains(got[key], want) {
			t.Errorf("%s: %q, want %q", key, got[key], want)
		}
	}
	if len(got) != 4 {
		t.Errorf("uploads %v", got)
	}
}

func TestOverviewCountsTheMessagesOfQueues(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.submitted(runA, run.Running)
	d.beat("w", "big")
	for q, n := range map[string]int{"work-default": 3, queue.DeadLetterQueue("coordinate"): 2} {
		for range n {
			if err := d.ports.Queues.Send(t.Context(), q, [][]byte{[]byte("x")}, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	o, err := d.Overview(t.Context(), status.Page{Limit: 20})
	if err != nil {
		t.Fatal(err)
	}
	want := []status.QueueStatus{
		{Queue: "coordinate", Dead: 2}, {Queue: "plan"}, {Queue: "tasks"},
		{Queue: "work-big"}, {Queue: "work-default", Waiting: 3},
	}
	if d := cmp.Diff(want, o.Queues); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// partialQueues are queues one of which does not exist.
type partialQueues struct {
	queue.Queues
	queue.Depther
	missing string
}

func (q partialQueues) Depth(ctx context.Context, name string) (visible, hidden int, err error) {
	if name == q.missing {
		return 0, 0, fault.New(fault.NotFound, "there is no queue %s", name)
	}
	return q.Depther.Depth(ctx, name)
}

// A pool that is removed from the config has no queues any more, but its runs and
// the last heartbeats of its workers remain.
func TestRemovedPoolDoesNotBreakTheOverview(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.submitted(runA, run.Completed)
	d.beat("w", "default")
	deployment := config.DefaultDeployment()
	deployment.Pools = []config.Pool{{Name: "new", Model: "m"}}
	p := d.ports
	p.Queues = partialQueues{p.Queues, p.Queues.(queue.Depther), "work-default"}
	s := api.New(p, deployment, statustest.InCloud())
	o, err := s.Overview(t.Context(), status.Page{Limit: 20})
	if err != nil || len(o.Runs) != 1 || len(o.Queues) != 3 {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := s.RunOverview(t.Context(), runA); err != nil || len(o.Runs) != 1 || len(o.Queues) != 3 {
		t.Errorf("%+v, %v", o, err)
	}
	if x, err := s.Explain(t.Context(), runA, ""); err != nil || x.Run.Run != runA {
		t.Errorf("%+v, %v", x, err)
	}
}

func TestRunOverviewShowsOneRunAndItsWorkers(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.submitted(runA, run.Running)
	d.submitted(runB, run.Running)
	for worker, pool := range map[string]string{"mine": "default", "other": "big"} {
		d.beat(worker, pool)
	}
	o, err := d.RunOverview(t.Context(), runA)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Runs) != 1 || o.Runs[0].Run != runA || len(o.Workers) != 1 || o.Workers[0].Worker != "mine" ||
		len(o.Queues) != 4 {
		t.Errorf("%+v", o)
	}
	if _, err := d.RunOverview(t.Context(), "unknown"); !fault.Is(err, fault.NotFound) {
		t.Errorf("an unknown run: %v", err)
	}
}
