package input_test

import (
	"strings"
	"testing"

	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

// planned plans files of 5 prompts, each of one range, and says so in range results.
func planned(t *testing.T, files int) (host.Ports, record.Manifest, record.Plan) {
	t.Helper()
	p := hosttest.New()
	var contents []string
	for n := range files {
		contents = append(contents, inputtest.Prompts(10*n, 5))
	}
	m := inputtest.Plan(t, p, inputtest.Manifest(2), contents...)
	for n := range files {
		hosttest.Put(t, p, record.RangeKey(m.Run, n), "{}")
	}
	return p, m, hosttest.Load[record.Plan](t, p, record.PlanKey(m.Run))
}

func TestAnotherVersionIsComparedWithThePlan(t *testing.T) {
	t.Parallel()
	content := inputtest.Prompts(10, 5)
	for name, c := range map[string]struct {
		content       string
		harm          func(host.Ports)
		same, planned bool
	}{
		"same bytes":            {content: content, same: true, planned: true},
		"another byte":          {content: strings.Replace(content, "12", "92", 1), planned: true},
		"another last byte":     {content: content[:len(content)-1] + " ", planned: true},
		"shorter":               {content: content[:len(content)-1], planned: true},
		"longer":                {content: content + "\n", planned: true},
		"the work was deleted":  {content: content, harm: func(p host.Ports) { del(t, p, record.RangeKey(run, 1)) }},
		"another of the inputs": {content: inputtest.Prompts(20, 5), planned: true},
	} {
		p, m, doc := planned(t, 3)
		version := hosttest.Put(t, p, m.Inputs[1].Key, c.content)
		if c.harm != nil {
			c.harm(p)
		}
		same, planned, err := input.NewInputs(p.Blobs).SameAsPlanned(t.Context(), m, doc, 1, version)
		if err != nil || same != c.same || planned != c.planned {
			t.Errorf("%s: same %t, planned %t, %v", name, same, planned, err)
		}
	}
}

func del(t *testing.T, p host.Ports, key string) {
	t.Helper()
	if err := p.Blobs.Delete(t.Context(), key, ""); err != nil {
		t.Fatal(err)
	}
}

func TestPlannedVersion(t *testing.T) {
	t.Parallel()
	p, m, doc := planned(t, 2)
	x := input.NewInputs(p.Blobs)
	pinned := doc.Ranges[0].Version
	if v, known, err := x.PlannedVersion(t.Context(), m, doc, 0); v != pinned || !known || err != nil {
		t.Errorf("unchanged: %q, %t, %v", v, known, err)
	}
	again := hosttest.Put(t, p, m.Inputs[0].Key, inputtest.Prompts(0, 5))
	if v, known, err := x.PlannedVersion(t.Context(), m, doc, 0); v != again || !known || err != nil {
		t.Errorf("put again: %q, %t, %v", v, known, err)
	}
	hosttest.Put(t, p, m.Inputs[0].Key, inputtest.Prompts(1, 5))
	if _, _, err := x.PlannedVersion(t.Context(), m, doc, 0); fault.ClassOf(err) != fault.InputChanged {
		t.Errorf("other bytes: %v", err)
	}
	del(t, p, record.RangeKey(run, 0))
	if _, known, err := x.PlannedVersion(t.Context(), m, doc, 0); known || err != nil {
		t.Errorf("nothing planned: known %t, %v", known, err)
	}
	del(t, p, m.Inputs[0].Key)
	if _, _, err := x.PlannedVersion(t.Context(), m, doc, 0); !fault.Is(err, fault.NotFound) {
		t.Errorf("missing: %v", err)
	}
}

// The plan of a training has no lines of its dataset: its job names the digest.
func TestDatasetIsComparedWithTheJob(t *testing.T) {
	t.Parallel()
	const rows = "{\"prompt\":\"1\",\"completion\":\"2\"}\n"
	for name, c := range map[string]struct {
		digest, now   string
		same, planned bool
	}{
		"same rows":  {identity.Content([]byte(rows)).String(), rows, true, true},
		"other rows": {identity.Content([]byte(rows)).String(), strings.Replace(rows, "2", "3", 1), false, true},
		"old job":    {"", rows, false, false},
	} {
		p := hosttest.New()
		m := inputtest.Manifest(0)
		m.Inputs = []record.Input{{Key: "prompts/d.jsonl", Version: "1", Size: int64(len(rows))}}
		job := record.Job{Dataset: record.Dataset{Digest: c.digest}}
		hosttest.Put(t, p, record.JobKey(run), string(record.Encode(job)))
		doc := record.Plan{Ranges: []record.Ranges{{Key: record.JobKey(run), Count: 1}}}
		version := hosttest.Put(t, p, "prompts/d.jsonl", c.now)
		same, planned, err := input.NewInputs(p.Blobs).SameAsPlanned(t.Context(), m, doc, 0, version)
		if err != nil || same != c.same || planned != c.planned {
			t.Errorf("%s: same %t, planned %t, %v", name, same, planned, err)
		}
	}
}
