package emulators

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"rollout/functions/api"
	"rollout/functions/status"
	"rollout/shared/aws"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	engine "rollout/shared/core/run"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// countedRequests counts the requests of a client.
type countedRequests struct {
	http.RoundTripper
	requests atomic.Int64
}

func (c *countedRequests) RoundTrip(r *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

// With more ended runs than a page has, `rollout status` takes three requests of DynamoDB.
func TestStatusOfEndedRunsTakesThreeRequests(t *testing.T) {
	t.Parallel()
	i := install(t)
	const ended, limit = 60, 20
	for n := range ended {
		m := record.Manifest{Schema: record.Schema, Run: identity.RunID(fmt.Sprintf("01JD%022d", n)), Kind: "batch",
			Name: fmt.Sprint("night-", n), CreatedAt: time.Now().Add(time.Duration(n-1000) * time.Hour)}
		s := engine.New(m.Run)
		s.Phase, s.EndedAt = engine.Completed, m.CreatedAt.Add(time.Minute)
		key, e := status.NewEnded(status.Progress{Manifest: m, State: s})
		i.create(t, key, e)
	}
	i.create(t, record.RunIndexKey, record.RunIndex{Schema: record.Schema, Built: true, Ended: ended})

	counted := &countedRequests{RoundTripper: http.DefaultTransport}
	cfg := i.Config(t.Context(), t)
	cfg.HTTPClient = &http.Client{Transport: counted}
	p := hosttest.New() // its bucket and queues are empty
	p.Docs = aws.NewDocuments(cfg, i.Table, aws.DocumentOptions{Listed: aws.ListedPrefixes()})
	d := config.DefaultDeployment()
	o, err := api.New(p, d, aws.Provider{}.Profile(d)).Overview(t.Context(), status.Page{Limit: limit})
	if err != nil || len(o.Runs) != limit || o.More != ended-limit || o.Runs[0].Name != "night-59" {
		t.Fatalf("%d runs, %d more, %v", len(o.Runs), o.More, err)
	}
	if n := counted.requests.Load(); n < 1 || n > 3 {
		t.Errorf("%d requests", n)
	}
}
