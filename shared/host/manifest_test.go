package host_test

import (
	"testing"

	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

func TestManifestsComeInTheOrderOfTheirRuns(t *testing.T) {
	t.Parallel()
	const a, b, none = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVE"), identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVF"),
		identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVG")
	p := hosttest.New()
	for _, id := range []identity.RunID{a, b} {
		hosttest.Save(t, p, record.ManifestKey(id), record.Manifest{Schema: record.Schema, Run: id})
	}
	got, err := host.LoadManifests(t.Context(), p.Docs, []identity.RunID{b, none, a})
	if err != nil || len(got) != 3 || got[0].Run != b || got[1].Run != "" || got[2].Run != a {
		t.Errorf("%+v, %v", got, err)
	}
	hosttest.Save(t, p, record.ManifestKey(none), record.Manifest{Schema: record.Schema, Run: a})
	if _, err := host.LoadManifests(t.Context(), p.Docs, []identity.RunID{a, none}); !fault.Is(err, fault.Corrupt) {
		t.Errorf("the manifest of another run: %v", err)
	}
}
