package status_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/functions/status"
	"rollout/shared/core/health"
)

func TestLimitsAreThoseOfLivingWorkersTogether(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	worker := func(pool string, alive bool, l *health.Limit) status.WorkerStatus {
		return status.WorkerStatus{Pool: pool, Alive: alive, Load: health.Load{Limit: l}}
	}
	got := status.Limits([]status.WorkerStatus{
		worker("a", true, &health.Limit{Requests: 600, RequestsFrom: "config", UsedRequests: 200, Waiting: 2}),
		worker("a", true, &health.Limit{Requests: 450, RequestsFrom: "refusals", UsedRequests: 100, UsedTokens: 7,
			WaitUntil: at}),
		worker("b", true, nil),
		worker("a", false, &health.Limit{Requests: 1, UsedRequests: 1}),
		worker("c", true, &health.Limit{Tokens: 100, TokensFrom: "headers", UsedTokens: 80}),
	})
	want := []status.PoolLimit{
		{Pool: "a", Requests: 450, RequestsFrom: "refusals", UsedRequests: 300, UsedTokens: 7, Waiting: 2, WaitingWorkers: 1,
			Workers: 2, WaitUntil: &at},
		{Pool: "c", Tokens: 100, TokensFrom: "headers", UsedTokens: 80, Workers: 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if a, c := got[0].Used(), got[1].Used(); a != 300./450 || c != 0.8 {
		t.Errorf("used %v and %v of the limits", a, c)
	}
}
