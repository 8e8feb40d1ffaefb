// Package gpus knows the machine types of clouds that have GPUs: how many, of which
// memory, and what else bounds a model's server on them. A type that is not listed is
// unknown, not wrong: clouds add types faster than this table does.
package gpus

import "strings"

// Machine is a machine type.
type Machine struct {
	Count int // of its GPUs
	GPU   GPU
	// MemoryGiB is the machine's memory.
	MemoryGiB int
	// LocalGB is what images and models have on its own NVMe disks; 0 is none.
	LocalGB int
}

// GPU is one GPU.
type GPU struct {
	Name string
	// MemoryMiB is what nvidia-smi reports as total.
	MemoryMiB int
	// Capability is its compute capability times 10. From 80 on there is bfloat16.
	Capability int
}

// GiB returns the GPU's memory.
func (g GPU) GiB() float64 { return float64(g.MemoryMiB) / 1024 }

// The memory is what nvidia-smi reports in public logs of these GPUs.
var (
	t4      = GPU{"T4", 15360, 75}
	a10g    = GPU{"A10G", 23028, 86}
	l4      = GPU{"L4", 23034, 89}
	l40s    = GPU{"L40S", 46068, 89}
	a100    = GPU{"A100 40 GB", 40960, 80}
	a100x80 = GPU{"A100 80 GB", 81920, 80}
	h100    = GPU{"H100", 81559, 90}
	h200    = GPU{"H200", 143771, 90}
	b200    = GPU{"B200", 183359, 100}
	rtx6000 = GPU{"RTX PRO 6000", 97887, 120}
)

// size is a size of a series: the GPUs, the machine's memory in GiB, its disks in GB.
type size struct {
	name               string
	count, memory, own int
}

// series are the machine types that begin alike and have the same GPU.
type series struct {
	prefix string
	gpu    GPU
	sizes  []size
}

// table lists the series of Amazon's EC2, from its pages of instance types, and then of
// Google's Compute Engine. Machines are listed with all their disks, which act as one.
var table = []series{
	{"g4dn.", t4, []size{{"xlarge", 1, 16, 125}, {"2xlarge", 1, 32, 225}, {"4xlarge", 1, 64, 225},
		{"8xlarge", 1, 128, 900}, {"12xlarge", 4, 192, 900}, {"16xlarge", 1, 256, 900}, {"metal", 8, 384, 1800}}},
	{"g5.", a10g, []size{{"xlarge", 1, 16, 250}, {"2xlarge", 1, 32, 450}, {"4xlarge", 1, 64, 600},
		{"8xlarge", 1, 128, 900}, {"12xlarge", 4, 192, 3800}, {"16xlarge", 1, 256, 1900},
		{"24xlarge", 4, 384, 3800}, {"48xlarge", 8, 768, 7600}}},
	{"g6.", l4, []size{{"xlarge", 1, 16, 250}, {"2xlarge", 1, 32, 450}, {"4xlarge", 1, 64, 600},
		{"8xlarge", 1, 128, 900}, {"12xlarge", 4, 192, 3760}, {"16xlarge", 1, 256, 1880},
		{"24xlarge", 4, 384, 3760}, {"48xlarge", 8, 768, 7520}}},
	{"gr6.", l4, []size{{"4xlarge", 1, 128, 600}, {"8xlarge", 1, 256, 900}}},
	{"g6e.", l40s, []size{{"xlarge", 1, 32, 250}, {"2xlarge", 1, 64, 450}, {"4xlarge", 1, 128, 600},
		{"8xlarge", 1, 256, 900}, {"12xlarge", 4, 384, 3800}, {"16xlarge", 1, 512, 1900},
		{"24xlarge", 4, 768, 3800}, {"48xlarge", 8, 1536, 7600}}},
	{"p4d.", a100, []size{{"24xlarge", 8, 1152, 8000}}},
	{"p4de.", a100x80, []size{{"24xlarge", 8, 1152, 8000}}},
	{"p5.", h100, []size{{"4xlarge", 1, 256, 3840}, {"48xlarge", 8, 2048, 30720}}},
	{"p5e.", h200, []size{{"48xlarge", 8, 2048, 30720}}},
	{"p5en.", h200, []size{{"48xlarge", 8, 2048, 30720}}},
	{"p6-b200.", b200, []size{{"48xlarge", 8, 2048, 30720}}},

	{"g2-standard-", l4, []size{{"4", 1, 16, 0}, {"8", 1, 32, 0}, {"12", 1, 48, 0}, {"16", 1, 64, 0}, {"24", 2, 96, 0},
		{"32", 1, 128, 0}, {"48", 4, 192, 0}, {"96", 8, 384, 0}}},
	{"g4-standard-", rtx6000, []size{{"48", 1, 180, 0}, {"96", 2, 360, 0}, {"192", 4, 720, 0}, {"384", 8, 1440, 0}}},
	{"a2-highgpu-", a100, []size{{"1g", 1, 85, 0}, {"2g", 2, 170, 0}, {"4g", 4, 340, 0}, {"8g", 8, 680, 0}}},
	{"a2-ultragpu-", a100x80, []size{{"1g", 1, 170, 375}, {"2g", 2, 340, 750}, {"4g", 4, 680, 1500},
		{"8g", 8, 1360, 3000}}},
	{"a3-highgpu-", h100, []size{{"1g", 1, 234, 750}, {"2g", 2, 468, 1500}, {"4g", 4, 936, 3000},
		{"8g", 8, 1872, 6000}}},
	{"a3-megagpu-", h100, []size{{"8g", 8, 1872, 6000}}},
	{"a3-ultragpu-", h200, []size{{"8g", 8, 2952, 12000}}},
}

// Of returns the machine type of that name, and whether it is known.
func Of(name string) (Machine, bool) {
	for _, s := range table {
		rest, ok := strings.CutPrefix(name, s.prefix)
		if !ok {
			continue
		}
		for _, z := range s.sizes {
			if z.name == rest {
				return Machine{Count: z.count, GPU: s.gpu, MemoryGiB: z.memory, LocalGB: z.own}, true
			}
		}
	}
	return Machine{}, false
}

// OfTask returns what a task of a Cloud Run job has: one GPU, by the name of its
// accelerator.
func OfTask(accelerator string) (Machine, bool) {
	switch accelerator {
	case "nvidia-l4":
		return Machine{Count: 1, GPU: l4, MemoryGiB: 32}, true
	case "nvidia-rtx-pro-6000":
		return Machine{Count: 1, GPU: rtx6000, MemoryGiB: 80}, true
	}
	return Machine{}, false
}
