package config

import (
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"rollout/shared/core/gpus"
	"rollout/shared/core/servers"
)

const (
	maxEngineArgs     = 64
	maxEngineText     = 2048 // of one argument or variable, in bytes
	maxTensorParallel = 64
	minDiskGB         = 100
	minTrainingDiskGB = 10
	maxDiskGB         = 16384
	minDiskThroughput = 125
	maxDiskThroughput = 1000
	minBootDeadline   = time.Minute
	maxBootDeadline   = 3 * time.Hour
	// maxTaskBoot leaves a task of Cloud Run, which lives 50 minutes, time to work.
	maxTaskBoot     = 40 * time.Minute
	minBootPause    = time.Second
	maxBootPause    = 15 * time.Minute
	maxMachinePrice = 1000 // dollars an hour
	maxTags         = 40
)

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// modelFolder excludes what Docker reads as options in the name of a mount.
	modelFolder = regexp.MustCompile(`^(/[a-zA-Z0-9_.@+-]+)+$`)
	modelObject = regexp.MustCompile(`^[a-z0-9]+://[a-z0-9][a-z0-9._-]*(/[a-zA-Z0-9_.@+-]+)+/?$`)
)

// machineKeys returns the keys of PoolMachines that a pool sets.
func (m PoolMachines) machineKeys() (keys []string) {
	v := reflect.ValueOf(m)
	for _, f := range fieldsOf(v.Type()) {
		x := v.FieldByIndex(f.index)
		set := !x.IsZero()
		if x.Kind() == reflect.Slice || x.Kind() == reflect.Map {
			set = x.Len() > 0
		}
		if set {
			keys = append(keys, f.key)
		}
	}
	return keys
}

// notOfTasks are the keys that describe machines of a group, which tasks of Cloud Run are
// not.
var notOfTasks = []string{"instance_types", "disk_gb", "ami"}

// ofServers are the keys that describe an inference server.
var ofServers = []string{"server", "engine_image", "engine_args", "engine_env", "tokenizer", "tensor_parallel"}

// checkMachineKeys adds the problems of the pool's machines and server. provider is the
// name of the cloud's provider, or "".
func (p Pool) checkMachineKeys(c *checker, at, provider string) {
	of, inCloud := providerOf(provider)
	for _, key := range p.machineKeys() {
		switch {
		case !inCloud:
			c.add(join(at, key), "an installation outside a cloud starts no machines: remove it")
		case p.Trains() && slices.Contains(ofServers, key):
			c.add(join(at, key), "a training asks no server: remove it")
		case of.lacks[key] != "":
			c.add(join(at, key), "the provider %q can't do it: %s", of.name, of.lacks[key])
		case p.Machines == MachinesCloudRun && slices.Contains(notOfTasks, key):
			c.add(join(at, key), "tasks of Cloud Run have none: remove it")
		}
	}
	c.integer(join(at, "tensor_parallel"), &p.TensorParallel, 0, maxTensorParallel, "")
	if p.TensorParallel > 1 && p.Machines == MachinesCloudRun {
		c.add(join(at, "tensor_parallel"), "a task of Cloud Run has one GPU: remove it")
	}
	p.checkPrices(c, at)
	p.checkDisk(c, at)
	p.checkServer(c, at)
	if !inCloud {
		return
	}
	p.checkNames(c, at, of)
	if p.Trains() {
		p.checkTrainingMachines(c, at, of)
	} else {
		p.checkModelSource(c, join(at, "model"), of)
	}
}

// checkTrainingMachines adds the problems of a training pool's machines, which have processors
// alone.
func (p Pool) checkTrainingMachines(c *checker, at string, of provider) {
	if p.Machines == MachinesCloudRun {
		c.add(join(at, "machines"), "a training outlasts a task of Cloud Run: remove it")
	}
	if p.Provisioning == ProvisioningFlexStart {
		c.add(join(at, "provisioning"), "%s is for machines with GPUs: use %s or %s", quote(p.Provisioning),
			quote(ProvisioningSpot), quote(ProvisioningStandard))
	}
	for i, name := range p.InstanceTypes {
		field := element(join(at, "instance_types"), i)
		if of.armType.MatchString(name) {
			c.add(field, "%s has processors of Arm, and the worker program is for x86: choose another type", quote(name))
		} else if _, ok := gpus.Of(name); ok {
			c.add(field, "%s has GPUs, which a training does not use: name types without, such as %q", quote(name),
				of.trainingTypes[0])
		}
	}
}

// optional checks a number where 0 is absent.
func (c *checker) optional(field string, x, low, high int) {
	if x != 0 {
		c.integer(field, &x, low, high, "")
	}
}

func (p Pool) checkPrices(c *checker, at string) {
	if !(p.MaxPrice >= 0 && p.MaxPrice <= maxMachinePrice) {
		c.add(join(at, "max_price"), "must be between 0 and %d dollars an hour, is %g", maxMachinePrice, p.MaxPrice)
	}
	c.integer(join(at, "on_demand_base"), &p.OnDemandBase, 0, maxMachines, "")
	if !(p.OnDemandShare >= 0 && p.OnDemandShare <= 1) {
		c.add(join(at, "on_demand_share"), "must be between 0 and 1, is %g", p.OnDemandShare)
	}
	if p.Provisioning == ProvisioningStandard && (p.OnDemandBase > 0 || p.OnDemandShare > 0 || p.MaxPrice > 0) {
		c.add(join(at, "provisioning"), "%s already buys all machines at the list price: remove it, or max_price, "+
			"on_demand_base and on_demand_share", quote(p.Provisioning))
	}
}

func (p Pool) checkDisk(c *checker, at string) {
	least := minDiskGB
	if p.Trains() {
		least = minTrainingDiskGB
	}
	c.optional(join(at, "disk_gb"), p.DiskGB, least, maxDiskGB)
	c.optional(join(at, "disk_throughput"), p.DiskThroughput, minDiskThroughput, maxDiskThroughput)
	most, why := maxBootDeadline, ""
	if p.Machines == MachinesCloudRun {
		most, why = maxTaskBoot, ": a task of Cloud Run lives 50 minutes"
	}
	if d := p.BootDeadline.Std(); d != 0 && (d < minBootDeadline || d > most) {
		c.add(join(at, "boot_deadline"), "must be between %s and %s, is %s%s", minBootDeadline, most, d, why)
	}
}

// checkServer adds the problems of the server and of what it is given.
func (p Pool) checkServer(c *checker, at string) {
	server, ok := servers.Of(p.Server)
	if !ok {
		c.oneOf(join(at, "server"), "server", p.Server, servers.Names())
		return
	}
	if p.EngineImage != "" {
		c.pattern(join(at, "engine_image"), p.EngineImage, imageName, `write one such as "`+server.Image+`"`)
	}
	if n := len(p.EngineArgs); n > maxEngineArgs {
		c.add(join(at, "engine_args"), "must list at most %d arguments, lists %d", maxEngineArgs, n)
	}
	for i, a := range p.EngineArgs {
		field := element(join(at, "engine_args"), i)
		c.text(field, a, maxEngineText)
		if server.Own(a) {
			c.add(field, "%s is set by rollout: remove it", quote(a))
		}
	}
	if n := len(p.EngineEnv); n > maxEngineArgs {
		c.add(join(at, "engine_env"), "must have at most %d variables, has %d", maxEngineArgs, n)
	}
	for _, name := range sortedKeys(p.EngineEnv) {
		field := join(join(at, "engine_env"), name)
		c.pattern(field, name, variableName, "use letters, digits and _, and begin with a letter")
		c.text(field, p.EngineEnv[name], maxEngineText)
		if name == "HF_TOKEN" || name == "HUGGING_FACE_HUB_TOKEN" {
			c.add(field, "a token does not belong in a config: create the secret hf-token, and allow it in cloud.secrets")
		}
	}
	c.text(join(at, "tokenizer"), p.Tokenizer, maxText)
	if p.Tokenizer != "" && !server.HasTokenizer() {
		c.add(join(at, "tokenizer"), "%s has its tokenizer in the model's file: remove it", server.Name)
	}
	if strings.HasPrefix(p.Tokenizer, "-") {
		c.add(join(at, "tokenizer"), "%s begins like an option of the server: write the name of a model", quote(p.Tokenizer))
	}
	if server.Name != servers.VLLM && p.Revision != "" && !server.HasRevision() {
		c.add(join(at, "revision"), "%s can't fetch a revision: remove it", server.Name)
	}
}

// checkModelSource adds the problem of a model that the pool's machines can't fetch.
func (p Pool) checkModelSource(c *checker, at string, of provider) {
	switch p.ModelSource() {
	case ModelBuiltIn:
	case ModelOfHub:
		if strings.HasPrefix(p.Model, "-") {
			c.add(at, "%s begins like an option of the server: write the name of a model", quote(p.Model))
		}
	case ModelOfFolder:
		if !modelFolder.MatchString(p.Model) || isRelative(p.Model) {
			c.add(at, "%s can't be used here: write a folder of letters, digits, -, _, ., @ and +, such as %q",
				quote(p.Model), "/models/x")
		}
		if p.Machines != MachinesCloudRun && p.AMI == "" {
			c.add(at, "%s is a folder of the machines, and the provider's image has none: name an image that has it as ami",
				quote(p.Model))
		}
		if p.Machines == MachinesCloudRun && p.EngineImage == "" {
			c.add(at, "%s is a folder of the container: name an image that has it as engine_image", quote(p.Model))
		}
	case ModelOfBucket:
		bucket, _ := p.ModelBucket()
		switch {
		case p.Machines == MachinesCloudRun:
			c.add(at, "tasks of Cloud Run fetch models from the hub: name one of it, or put the model into engine_image")
		case !strings.HasPrefix(p.Model, of.scheme):
			c.add(at, "%s is not an address of the provider's buckets: write %sBUCKET/FOLDER", quote(p.Model), of.scheme)
		case !modelObject.MatchString(p.Model) || isRelative(p.Model):
			c.add(at, "%s can't be used here: write %sBUCKET/FOLDER with letters, digits, -, _, ., @ and +",
				quote(p.Model), of.scheme)
		case len(bucket) < 3:
			c.add(at, "%s names no bucket: write %sBUCKET/FOLDER", quote(p.Model), of.scheme)
		}
		if ext := path.Ext(p.Model); p.Server == servers.LlamaCpp && ext != ".gguf" && ext != ".json" {
			c.add(at, "%s serves one file: write the address of a .gguf file, or the one that `rollout model cache` printed",
				servers.LlamaCpp)
		}
	}
	if p.Server == servers.LlamaCpp && p.ModelSource() == ModelOfFolder && !strings.HasSuffix(p.Model, ".gguf") {
		c.add(at, "%s serves one file: write the path of a .gguf file", servers.LlamaCpp)
	}
}

// isRelative reports whether a part of the path leads to another folder.
func isRelative(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(part string) bool { return part == "." || part == ".." })
}

// checkNames adds the problems of names that the provider has rules for.
func (p Pool) checkNames(c *checker, at string, of provider) {
	if len(p.InstanceTypes) > of.maxInstanceTypes {
		c.add(join(at, "instance_types"), "must list 1 to %d types, lists %d", of.maxInstanceTypes, len(p.InstanceTypes))
	}
	for i, name := range p.InstanceTypes {
		field := element(join(at, "instance_types"), i)
		c.pattern(field, name, of.instanceType, of.instanceTypeRemedy)
		if slices.Contains(p.InstanceTypes[:i], name) {
			c.add(field, "%s is listed twice: name each type once", quote(name))
		}
	}
	if p.AMI != "" {
		c.pattern(join(at, "ami"), p.AMI, of.image, of.imageRemedy)
	}
	if len(p.Tags) > maxTags {
		c.add(join(at, "tags"), "must have at most %d tags, has %d", maxTags, len(p.Tags))
	}
	for _, key := range sortedKeys(p.Tags) {
		field := join(join(at, "tags"), key)
		c.pattern(field, key, of.tagKey, of.tagRemedy)
		c.pattern(field, p.Tags[key], of.tagValue, of.tagRemedy)
		if strings.EqualFold(key, "rollout") || strings.EqualFold(key, "installation") ||
			strings.HasPrefix(strings.ToLower(key), of.ownTags) {
			c.add(field, "rollout or the provider sets this tag: choose another name")
		}
	}
}
