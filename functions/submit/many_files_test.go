package submit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rollout/functions/submit"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

// manyFiles stores n files, and returns the manifest of a run of them.
func (d *fixture) manyFiles(n int) record.Manifest {
	d.t.Helper()
	m := record.Manifest{Run: "01JD2ZQ4T5W0M1X9YB7R3K8CVE", Name: "many"}
	for i := range n {
		e := d.put(fmt.Sprintf("prompts/%d.jsonl", i), prompt)
		m.Inputs = append(m.Inputs, record.Input{Key: e.Key, Version: e.Version, Size: e.Size})
	}
	return m
}

// A submission of many files that ends at any of its writes leaves no run, or the whole run;
// the next one may have other files, as the folder may have changed.
func TestCrashInASubmissionOfManyFilesLeavesNoHalfRun(t *testing.T) {
	t.Parallel()
	limits := inputtest.InParts(2, 3)
	inputsOf := func(d *fixture, m record.Manifest) (out []record.Input) {
		for in, err := range input.NewInputs(d.Blobs).All(t.Context(), m) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, in)
		}
		return out
	}
	for _, late := range []bool{false, true} {
		for write := 0; ; write++ {
			d := newFixture(t)
			first := d.manyFiles(8)
			p := hosttest.Crashing(d.Ports, write, late)
			opts := submit.Options{Deployment: d.deploy, Inputs: &limits}
			err := submit.New(p, opts).Create(t.Context(), first, config.DefaultRun())
			if err == nil {
				if write < 5 {
					t.Fatalf("a submission has %d writes", write)
				}
				break
			}
			created := hosttest.Load[record.Manifest](t, d.Ports, record.ManifestKey(first.Run)).Run != ""
			second := first
			second.Inputs = append(slices.Clone(first.Inputs[:4]), first.Inputs[5:]...)
			if err := submit.New(d.Ports, opts).Create(t.Context(), second, config.DefaultRun()); err != nil {
				t.Fatal(err)
			}
			want := second.Inputs
			if created {
				want = first.Inputs
			}
			got := hosttest.Load[record.Manifest](t, d.Ports, record.ManifestKey(first.Run))
			if !slices.Equal(inputsOf(d, got), want) || got.InputCount() != len(want) || d.planned() == 0 {
				t.Errorf("after a crash at write %d (late: %v) the run has %d inputs, want %d; refused for %q",
					write, late, got.InputCount(), len(want), got.Refused)
			}
		}
	}
}

func TestTooManyFilesAreRefused(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	m := d.manyFiles(1)
	m.Inputs = slices.Repeat(m.Inputs, record.MaxInputs+1)
	sub := submit.New(d.Ports, submit.Options{Deployment: d.deploy})
	if err := sub.Create(t.Context(), m, config.DefaultRun()); err != nil {
		t.Fatal(err)
	}
	got := hosttest.Load[record.Manifest](t, d.Ports, record.ManifestKey(m.Run))
	if !strings.Contains(got.Refused, "100001 files are too many") || got.List != nil || len(got.Inputs) > 1 {
		t.Errorf("refused for %q with %d inputs", got.Refused, len(got.Inputs))
	}
	if work, err := d.Blobs.List(t.Context(), record.WorkPrefix, "", 1); err != nil || len(work) > 0 {
		t.Errorf("it left %v, %v", work, err)
	}
}

// The role of submit in a cloud may not write the parts of a list.
func TestListOfFilesInPartsIsRefusedInACloud(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	m, limits := d.manyFiles(3), inputtest.InParts(2, 3)
	opts := submit.Options{Deployment: d.deploy, Inputs: &limits, At: cloud.Capabilities{RemoteBucket: true}}
	if err := submit.New(d.Ports, opts).Create(t.Context(), m, config.DefaultRun()); err != nil {
		t.Fatal(err)
	}
	got := hosttest.Load[record.Manifest](t, d.Ports, record.ManifestKey(m.Run))
	if !strings.Contains(got.Refused, "3 files are too many for a run in a cloud") || got.List != nil {
		t.Errorf("refused for %q", got.Refused)
	}
}
