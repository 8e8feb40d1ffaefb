package e2e

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"rollout/functions/reclaim"
	"rollout/localstack/aws/fakeaws"
	"rollout/localstack/fakellm"
	"rollout/localstack/scenarios"
	"rollout/shared/clock"
	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/host"
	"rollout/shared/record"
)

// expire deletes the documents of ended runs as reclaim's function does, with its role, as it
// would be done that much later.
func (a *installation) expire(later time.Duration) {
	a.t.Helper()
	s, err := fakeaws.OpenInstallation(a.t.Context(), a.deployment, a.URL, "reclaim")
	if err != nil {
		a.t.Fatal(err)
	}
	p := s.Ports
	p.Clock = clock.Skewed{Offset: later}
	e := reclaim.NewExpirer(p, reclaim.ExpireOptions{Keep: a.deployment.Storage.KeepDocuments.Std()})
	if err := e.ExpireAll(a.t.Context()); err != nil {
		a.t.Fatal(err)
	}
}

// The documents of a run and of its retry expire, the parent's after the child's. Their files
// stay, and the upload is not run again. Reclaim's role suffices (open checks that nothing is
// denied), and so does that of a user who asks for them.
func TestDocumentsOfEndedRunsExpire(t *testing.T) {
	t.Parallel()
	s := scenarios.Serve(t, fakellm.Config{})
	a := open(t, s, scenarios.Settings{Machines: 1, More: "\n[storage]\nkeep_documents = \"1h\"\n"}, nil)
	parent := a.Put("prompts/x.jsonl", scenarios.SimplePrompts(60))
	first := a.AwaitEnd(parent)
	docs := a.Stores().Ports.Docs
	isIndexed := func(n int) func() bool {
		return func() bool {
			var x record.RunIndex
			_, _, err := host.Load(t.Context(), docs, record.RunIndexKey, &x)
			return err == nil && x.Linked && x.Ended == n
		}
	}
	scenarios.Eventually(t, "the run is in the index", isIndexed(1))
	child := identity.RunID(strings.TrimSpace(a.Do("retry", string(parent), "--all")))
	scenarios.WantSame(t, a.AwaitEnd(child), first)
	scenarios.Eventually(t, "the child is in the index", isIndexed(2))
	asked := s.Requests()
	// By then, whoever is to be told of their ends was told, or never will be.
	for _, later := range []time.Duration{26 * time.Hour, 27 * time.Hour, 28 * time.Hour, 29 * time.Hour} {
		a.expire(later)
	}

	for d, err := range document.All(t.Context(), docs, "") {
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{string(parent), string(child)} {
			if strings.Contains(d.Key, id) && !strings.HasPrefix(d.Key, record.FoundPrefix) {
				t.Errorf("%s is left", d.Key)
			}
		}
	}
	for _, id := range []string{string(parent), string(child), string(child)[:20]} {
		out, err := a.Command("status", id)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(out, "its documents have expired") {
			t.Errorf("status %s: %v\n%s", id, err, out)
		}
		out, err = a.Command("results", id)
		if err != nil || strings.Count(out, `"completion"`) != 60 {
			t.Errorf("results %s: %v\n%s", id, err, out)
		}
	}
	if out, err := a.Command("status"); err != nil || !strings.Contains(out, "2 older runs expired") {
		t.Errorf("status: %v\n%s", err, out)
	}
	for _, later := range []time.Duration{time.Hour, 3 * time.Hour} {
		if err := a.scanUploads(later); err != nil {
			t.Error(err)
		}
	}
	if _, err := host.LoadManifest(t.Context(), docs, parent); !host.IsExpired(err) || s.Requests() != asked {
		t.Errorf("the upload is run again: %v, with %d requests", err, s.Requests()-asked)
	}
}
