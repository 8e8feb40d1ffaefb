package gpus_test

import (
	"testing"

	"rollout/shared/core/gpus"
)

func TestMachineTypesHaveTheirGPUs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		count int
		gpu   string
		known bool
	}{
		"g6.xlarge":      {1, "L4", true},
		"g6.12xlarge":    {4, "L4", true},
		"g6e.48xlarge":   {8, "L40S", true},
		"gr6.4xlarge":    {1, "L4", true},
		"p5.4xlarge":     {1, "H100", true},
		"p4de.24xlarge":  {8, "A100 80 GB", true},
		"g2-standard-24": {2, "L4", true},
		"a2-ultragpu-1g": {1, "A100 80 GB", true},
		"a3-ultragpu-8g": {8, "H200", true},
		"g6.3xlarge":     {0, "", false},
		"m7i.large":      {0, "", false},
		"":               {0, "", false},
	} {
		m, known := gpus.Of(name)
		if m.Count != c.count || m.GPU.Name != c.gpu || known != c.known {
			t.Errorf("%s has %d × %q, known: %v, want %d × %q, %v", name, m.Count, m.GPU.Name, known, c.count, c.gpu, c.known)
		}
		if known && (m.MemoryGiB < 16 || m.GPU.GiB() < 15) {
			t.Errorf("%s has %d GiB, and its GPU %.1f", name, m.MemoryGiB, m.GPU.GiB())
		}
	}
	for name, gb := range map[string]int{"g6.12xlarge": 3760, "a2-ultragpu-4g": 1500, "a3-ultragpu-8g": 12000,
		"a2-highgpu-8g": 0} {
		if m, _ := gpus.Of(name); m.LocalGB != gb {
			t.Errorf("the own disks of %s have %d GB, want %d", name, m.LocalGB, gb)
		}
	}
	if m, ok := gpus.OfTask("nvidia-l4"); !ok || m.GPU.Name != "L4" {
		t.Errorf("a task has %+v, %v", m, ok)
	}
	if _, ok := gpus.OfTask("nvidia-h100"); ok {
		t.Error("tasks have H100s")
	}
}
