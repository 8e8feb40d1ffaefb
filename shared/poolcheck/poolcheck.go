// Package poolcheck tells whether the machines that a deployment's config describes can
// serve their models, before any machine is paid for: at deploy, at submit and by the
// doctor. It computes from tables and from the model's own config; what can't be known is
// said. It decides nothing and calls no cloud.
//
//	config ──┐
//	         ├─▶ Check ──▶ problems: it will not start;  notes: what can't be known
//	Model ───┘
package poolcheck

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rollout/shared/config"
	"rollout/shared/core/gpus"
	"rollout/shared/core/modelsize"
	"rollout/shared/core/servers"
	"rollout/shared/figures"
)

// Sizes in GB that a machine's disk must hold besides the model. Images are counted
// unpacked.
const (
	engineGB  = 30 // an engine's container image
	machineGB = 60 // the machine's image, with its driver and CUDA
)

// taskGPU is the GPU of Cloud Run's tasks by default, and largeTaskGPU the other that a
// deployment may choose. The config does not say which.
const taskGPU, largeTaskGPU = "nvidia-l4", "nvidia-rtx-pro-6000"

// Report is what is known about a pool.
type Report struct {
	Pool string
	// Problems say why machines of the pool will not start to serve, and what to do.
	Problems []string
	// Notes say what fits, and what can't be known.
	Notes []string
	// Known says that the model's config was found.
	Known bool
}

// Check checks a pool with machines in a cloud. model is nil if it is not known; why then
// says why. A pool without such machines has an empty report.
func Check(d config.Deployment, p config.Pool, model *modelsize.Model, why string) Report {
	r := Report{Pool: p.Name}
	if !d.Cloud.Configured() || p.Trains() || p.ModelSource() == config.ModelBuiltIn {
		return r
	}
	c := checker{Report: &r, m: d.MachinesOf(p), p: p, model: model}
	c.server, _ = servers.Of(c.m.Server) // the config's check refuses unknown ones
	if r.Known = model != nil; !r.Known {
		c.note("whether %s fits is not known: %s", p.Model, why)
	}
	if p.Machines == config.MachinesCloudRun {
		c.tasks()
	} else {
		c.machines()
	}
	return r
}

// checker collects the report of a pool.
type checker struct {
	*Report
	p      config.Pool
	m      config.PoolMachines
	server servers.Server
	model  *modelsize.Model
}

func (c checker) problem(format string, args ...any) {
	c.Problems = append(c.Problems, fmt.Sprintf(format, args...))
}

func (c checker) note(format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}

// kind is a set of machine types that are alike for a server.
type kind struct {
	machine gpus.Machine
	names   []string
}

// kinds returns the pool's machine types by what they have, and those that are not known.
func (c checker) kinds() (kinds []kind, unknown []string) {
	for _, name := range c.m.InstanceTypes {
		m, ok := gpus.Of(name)
		if !ok {
			unknown = append(unknown, name)
			continue
		}
		i := slices.IndexFunc(kinds, func(k kind) bool {
			return k.machine.GPU == m.GPU && (k.machine.Count >= c.m.TensorParallel) == (m.Count >= c.m.TensorParallel)
		})
		if i < 0 {
			kinds = append(kinds, kind{machine: m})
			i = len(kinds) - 1
		}
		kinds[i].names = append(kinds[i].names, name)
		kinds[i].machine.LocalGB = min(kinds[i].machine.LocalGB, m.LocalGB)
	}
	return kinds, unknown
}

func (c checker) machines() {
	kinds, unknown := c.kinds()
	if len(unknown) > 0 {
		c.note("what %s have is not known here", strings.Join(unknown, ", "))
	}
	for _, k := range kinds {
		c.kind(k)
	}
}

// tasks checks a task of Cloud Run with the default GPU. What fits on the larger one alone
// is a note: the deployment may have it.
func (c checker) tasks() {
	small, large := c.task(taskGPU), c.task(largeTaskGPU)
	switch {
	case len(small.Problems) == 0:
		c.Notes = append(c.Notes, small.Notes...)
	case len(large.Problems) == 0:
		c.note("%s: fits only with cloud_run_gpu=%s", c.p.Name, largeTaskGPU)
		c.Notes = append(c.Notes, large.Notes...)
	default:
		c.Problems = append(append(c.Problems, small.Problems...), large.Problems...)
	}
}

// task returns what is known of a task with that GPU.
func (c checker) task(accelerator string) (r Report) {
	if m, ok := gpus.OfTask(accelerator); ok {
		c.Report = &r
		c.kind(kind{m, []string{"a task"}})
	}
	return r
}

// kind checks machines that are alike.
func (c checker) kind(k kind) {
	names := strings.Join(k.names, ", ")
	if k.machine.Count < c.m.TensorParallel {
		c.problem("%s: a server needs %s, and %s have %d: set tensor_parallel, or remove these types", c.p.Name,
			figures.Of(c.m.TensorParallel, "GPU"), names, k.machine.Count)
		return
	}
	if left := k.machine.Count % c.m.TensorParallel; left > 0 {
		c.note("%s: %s of %s stay unused", c.p.Name, figures.Of(left, "GPU"), names)
	}
	if k.machine.GPU.Capability < 80 && c.server.Name != servers.LlamaCpp {
		c.problem("%s: current images of %s do not work on a %s (%s): choose types with a newer GPU", c.p.Name,
			c.server.Name, k.machine.GPU.Name, names)
		return
	}
	if c.model != nil {
		c.memory(k, names)
		c.disk(k, names)
	}
}

// card returns which memory a server has on the machine.
func (c checker) card(k kind) modelsize.Card {
	card := modelsize.Card{GiB: k.machine.GPU.GiB(), Parallel: c.m.TensorParallel}
	number := func(flag string) float64 {
		value, _ := c.server.Value(c.m.EngineArgs, flag)
		x, _ := strconv.ParseFloat(value, 64) // 0 is the default
		return x
	}
	card.Share = max(number("--gpu-memory-utilization"), number("--mem-fraction-static"))
	if cache, _ := c.server.Value(c.m.EngineArgs, "--kv-cache-dtype"); strings.HasPrefix(cache, "fp8") {
		card.CacheBytes = 1
	}
	switch quantized, _ := c.server.Value(c.m.EngineArgs, "--quantization"); {
	case quantized == "fp8" && c.model.ValueBytes == 2:
		card.WeightFactor = 0.5
	case quantized == "bitsandbytes" && c.model.ValueBytes == 2:
		card.WeightFactor = 0.28
	}
	return card
}

// memory tells whether weights and the cache of the context fit.
func (c checker) memory(k kind, names string) {
	on := fmt.Sprintf("one %s (%s)", k.machine.GPU.Name, names)
	if c.m.TensorParallel > 1 {
		on = fmt.Sprintf("each of %d × %s (%s)", c.m.TensorParallel, k.machine.GPU.Name, names)
	}
	if c.model.Layers == 0 {
		c.weights(k, on)
		return
	}
	context, ok := c.server.ContextOf(c.m.EngineArgs)
	if !ok {
		c.note("%s: the server chooses a context that fits, if it can", c.p.Name)
		return
	}
	f := c.model.Fit(c.card(k), context)
	switch {
	case f.OK():
		c.note("%s: %s with a context of %s tokens fits on %s: %s GiB of weights, %s GiB of KV cache, which has %s GiB",
			c.p.Name, c.p.Model, figures.Count(f.Context), on, tenths(f.WeightsGiB), tenths(f.CacheGiB), tenths(f.LeftGiB))
	case f.Most == 0 && f.LeftGiB > 0:
		c.problem("%s: %s does not fit on %s: its weights take %s GiB, and the %s GiB that are left hold the KV cache of "+
			"fewer than 1,024 tokens: choose types with more memory, or a larger tensor_parallel", c.p.Name, c.p.Model, on,
			tenths(f.WeightsGiB), tenths(f.LeftGiB))
	case f.Most == 0:
		c.tooLarge(on, f.WeightsGiB)
	case c.model.Bound:
		c.note("%s: %s with a context of %s tokens may not fit on %s: if all layers cached it, it would need %s GiB of KV "+
			"cache, and %s GiB are left; engine_args = [%q, %q] fits for sure", c.p.Name, c.p.Model, figures.Count(f.Context),
			on, tenths(f.CacheGiB), tenths(f.LeftGiB), c.server.ContextFlag(), strconv.Itoa(f.Most))
	default:
		c.problem("%s: %s with a context of %s tokens needs %s GiB of KV cache, and on %s %s GiB are left beside %s GiB of "+
			"weights: set engine_args = [%q, %q], or choose types with more memory", c.p.Name, c.p.Model,
			figures.Count(f.Context), tenths(f.CacheGiB), on, tenths(f.LeftGiB), tenths(f.WeightsGiB),
			c.server.ContextFlag(), strconv.Itoa(f.Most))
	}
}

// weights tells whether the weights fit of a model of which nothing else is known.
func (c checker) weights(k kind, on string) {
	f := c.model.Fit(modelsize.Card{GiB: k.machine.GPU.GiB(), Parallel: c.m.TensorParallel, Share: 1}, 0)
	if f.LeftGiB <= 0 {
		c.tooLarge(on, f.WeightsGiB)
		return
	}
	c.note("%s: the weights of %s take %s GiB on %s, and leave %s GiB for its context", c.p.Name, c.p.Model,
		tenths(f.WeightsGiB), on, tenths(f.LeftGiB))
}

func (c checker) tooLarge(on string, weightsGiB float64) {
	c.problem("%s: %s does not fit on %s: its weights alone take %s GiB: choose types with more memory, or a larger "+
		"tensor_parallel", c.p.Name, c.p.Model, on, tenths(weightsGiB))
}

// disk tells whether the images and the model fit on the disks.
func (c checker) disk(k kind, names string) {
	model := c.model.WeightBytes / 1e9
	if c.p.Machines == config.MachinesCloudRun { // its files lie in its memory
		need := c.model.WeightBytes / (1 << 30)
		if OfHub(c.p) && need > float64(k.machine.MemoryGiB) {
			c.problem("%s: the files of %s take %s GiB, and a task keeps them in its memory of %d GiB: use machines, or put "+
				"the model into engine_image", c.p.Name, c.p.Model, tenths(need), k.machine.MemoryGiB)
		}
		return
	}
	if k.machine.LocalGB > 0 {
		if need := model + engineGB; need > float64(k.machine.LocalGB) {
			c.problem("%s: %s takes %s GB and the server's image %d, and the own disks of %s have room for %d GB: choose "+
				"types with larger disks, or with none, which use disk_gb", c.p.Name, c.p.Model, tenths(model), engineGB, names,
				k.machine.LocalGB)
		}
		return
	}
	if need := model + engineGB + machineGB; need > float64(c.m.DiskGB) {
		c.problem("%s: %s takes %s GB, the server's image %d and the machine's %d, and the disk has %d GB: set disk_gb = %d",
			c.p.Name, c.p.Model, tenths(model), engineGB, machineGB, c.m.DiskGB, (int(need)/50+1)*50)
	}
}

func tenths(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) }
