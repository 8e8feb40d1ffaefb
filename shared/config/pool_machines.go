package config

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"rollout/shared/core/servers"
)

// PoolMachines describes the machines that a cloud starts for a pool, and the inference
// server on them. What a pool leaves out is as Deployment.MachinesOf says.
type PoolMachines struct {
	// InstanceTypes are those that the provider may start; default: Fleet.InstanceTypes, and
	// types without GPUs of a training pool.
	InstanceTypes []string `toml:"instance_types"`
	// Server is the name of a server in shared/core/servers; default: vllm.
	Server string `toml:"server"`
	// EngineImage is its container image; default: Fleet.EngineImage for vLLM, else the
	// server's own.
	EngineImage string `toml:"engine_image"`
	// EngineArgs are further arguments of the server, each one word, and EngineEnv is its
	// environment. Neither goes through a shell.
	EngineArgs []string          `toml:"engine_args"`
	EngineEnv  map[string]string `toml:"engine_env"`
	// Tokenizer is the name or folder of another tokenizer than the model's.
	Tokenizer string `toml:"tokenizer"`
	// TensorParallel is how many GPUs one server uses; default: 1.
	TensorParallel int `toml:"tensor_parallel"`
	// DiskGB is the size of the root disk; default: 150, of a training pool 30.
	DiskGB int `toml:"disk_gb"`
	// DiskThroughput is that of the root disk in MB/s. 0 is 125 where all instance types
	// have disks of their own, which then hold images and models, else 500.
	DiskThroughput int `toml:"disk_throughput"`
	// BootDeadline is how long a machine's servers may take to be ready; default: 20m.
	BootDeadline Duration `toml:"boot_deadline"`
	// MaxPrice is what a spot machine may cost an hour, in dollars; 0 is the list price.
	MaxPrice float64 `toml:"max_price"`
	// OnDemandBase is how many machines are bought at the list price before any spot
	// machine, and OnDemandShare is the share of the others at that price.
	OnDemandBase  int     `toml:"on_demand_base"`
	OnDemandShare float64 `toml:"on_demand_share"`
	// DrainOnRebalance lets workers drain, and machines be replaced, when the provider
	// recommends to leave a machine that it has not taken back.
	DrainOnRebalance bool `toml:"drain_on_rebalance"`
	// AMI is the machine image; default: the provider's newest with a driver and Docker.
	AMI string `toml:"ami"`
	// Tags are those of the machines and their disks.
	Tags map[string]string `toml:"tags"`
}

// Defaults of PoolMachines.
const (
	defaultDiskGB       = 150
	defaultBootDeadline = Duration(20 * time.Minute)
	// trainingDiskGB holds a system and the worker. Snapshots lie in the bucket.
	trainingDiskGB = 30
)

// MachinesOf returns the description of a pool's machines with the defaults filled in,
// except DiskThroughput, which depends on the types. The machines of a training pool have
// processors alone, and no server.
func (d Deployment) MachinesOf(p Pool) PoolMachines {
	m := p.PoolMachines
	if p.Provisioning == ProvisioningStandard {
		m.OnDemandShare = 1
	}
	m.BootDeadline = cmp.Or(m.BootDeadline, defaultBootDeadline)
	if p.Trains() {
		m.DiskGB = cmp.Or(m.DiskGB, trainingDiskGB)
		if of, ok := providerOf(d.Cloud.Provider); ok && len(m.InstanceTypes) == 0 {
			m.InstanceTypes = of.trainingTypes
		}
		return m
	}
	if len(m.InstanceTypes) == 0 {
		m.InstanceTypes = d.Cloud.Fleet.InstanceTypes
	}
	server, _ := servers.Of(m.Server) // check refuses unknown ones
	m.Server = server.Name
	if server.Name == servers.VLLM {
		m.EngineImage = cmp.Or(m.EngineImage, d.Cloud.Fleet.EngineImage)
	}
	m.EngineImage = cmp.Or(m.EngineImage, server.Image)
	m.TensorParallel = max(m.TensorParallel, 1)
	m.DiskGB = cmp.Or(m.DiskGB, defaultDiskGB)
	return m
}

// LongestBoots returns how long a machine of each pool may take to boot.
func (d Deployment) LongestBoots() map[string]time.Duration {
	longest := map[string]time.Duration{}
	for _, p := range d.Pools {
		longest[p.Name] = d.MachinesOf(p).BootDeadline.Std()
	}
	return longest
}

// ShardsPerMachine returns how many open shards a pool starts one machine for. A training is
// one shard, which takes a whole machine.
func (d Deployment) ShardsPerMachine(pool string) int {
	if d.Pool(pool).Trains() {
		return 1
	}
	return d.Cloud.Fleet.ShardsPerMachine
}

// InstanceTypesOf returns the types of the pool's machines: its own, or those of the fleet.
func (d Deployment) InstanceTypesOf(pool string) []string {
	return d.MachinesOf(d.Pool(pool)).InstanceTypes
}

// GroupTypes returns the instance types of all pools with groups of machines, each once,
// in the order of the config.
func (d Deployment) GroupTypes() (types []string) {
	for _, p := range d.Pools {
		if p.Machines == MachinesCloudRun {
			continue
		}
		for _, t := range d.InstanceTypesOf(p.Name) {
			if !slices.Contains(types, t) {
				types = append(types, t)
			}
		}
	}
	return types
}

// ModelSource is where a pool's model comes from.
type ModelSource int

// Sources of models.
const (
	ModelOfHub    ModelSource = iota // by its name: "org/model"
	ModelOfBucket                    // a folder of a bucket: "s3://bucket/folder"
	ModelOfFolder                    // a folder of the machine's or container's image: "/models/x"
	ModelBuiltIn                     // ModelTiny: the worker itself serves it
)

// ModelSource returns where the pool's model comes from.
func (p Pool) ModelSource() ModelSource {
	switch {
	case p.Model == ModelTiny:
		return ModelBuiltIn
	case strings.HasPrefix(p.Model, "/"):
		return ModelOfFolder
	case strings.Contains(p.Model, "://"):
		return ModelOfBucket
	}
	return ModelOfHub
}

// HubName returns how the hub names the pool's model: without the tag by which llama.cpp
// takes some of a model's files, as in "org/model:Q4_K_M".
func (p Pool) HubName() string {
	if p.Server != servers.LlamaCpp {
		return p.Model
	}
	name, _, _ := strings.Cut(p.Model, ":")
	return name
}

// ModelBucket splits the address of a model in a bucket: "s3://acme/models/x/" is the
// bucket acme and the folder "models/x". Another source has none.
func (p Pool) ModelBucket() (bucket, folder string) {
	_, rest, ok := strings.Cut(p.Model, "://")
	if !ok {
		return "", ""
	}
	bucket, folder, _ = strings.Cut(rest, "/")
	return bucket, strings.Trim(folder, "/")
}
