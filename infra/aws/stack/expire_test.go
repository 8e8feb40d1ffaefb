package stack_test

import (
	"slices"
	"testing"

	"rollout/infra/aws/stack"
)

// Reclaim may delete the documents of runs only if the config has them expire.
func TestReclaimMayDeleteRunsOnlyIfTheyExpire(t *testing.T) {
	t.Parallel()
	deleted := func(made template) (out []string) {
		for _, s := range made.role(t, "reclaim") {
			if slices.Contains(s.actions, "dynamodb:DeleteItem") {
				out = append(out, s.partitions()...)
			}
		}
		return out
	}
	want := []string{"beat/", "worker/", "open/", "outbox/", "upload/", "file/", "run/", "ended/", "named/", "notify/",
		"batch/", "created/", "shard-??", "??"}
	if got := deleted(asUsual(t)); !slices.Equal(got, want) {
		t.Errorf("it may delete documents in %q, want %q", got, want)
	}
	kept := synth(t, settings(t, func(s *stack.Settings) { s.Deployment.Storage.KeepDocuments = 0 }))
	if got := deleted(kept); !slices.Equal(got, want[:6]) {
		t.Errorf("without expiry it may delete documents in %q, want %q", got, want[:6])
	}
}
