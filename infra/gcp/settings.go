package main

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"

	"rollout/shared/config"
	"rollout/shared/fault"
)

// settings are the variable settings of variables.tf.
type settings struct {
	Project       string          `json:"project"`
	Region        string          `json:"region"`
	Name          string          `json:"name"`
	Bucket        string          `json:"bucket"`
	Prefix        string          `json:"prefix"`
	Database      string          `json:"database"`
	Topics        string          `json:"topics"` // prefix of their names
	PushAccount   string          `json:"push_account"`
	Secrets       []string        `json:"secrets"`
	SecretPrefix  string          `json:"secret_prefix"`
	Config        string          `json:"config"`
	JobConfig     string          `json:"job_config"`
	Pools         map[string]pool `json:"pools"`
	MaxMachines   int             `json:"max_machines"`
	InstanceTypes []string        `json:"instance_types"`
	EngineImage   string          `json:"engine_image"`
}

// pool is a pool that answers prompts.
type pool struct {
	Model    string `json:"model"`
	Revision string `json:"revision"`
	Machines string `json:"machines"` // config.MachinesGroup or config.MachinesCloudRun
	// Provisioning is config.ProvisioningSpot, config.ProvisioningFlexStart or
	// config.ProvisioningStandard.
	Provisioning string `json:"provisioning"`
}

const (
	// maxConfig is the largest config in bytes: an environment variable of Cloud Run has
	// 32 KiB.
	maxConfig = 30 << 10
	// minName is the shortest name: the accounts of functions have 6 characters at least.
	minName = 2
	// maxBucketName leaves room for the name of the bucket of programs.
	maxBucketName = 63 - len("-programs")
	// jobDrain is the drain budget of a task of a Cloud Run job, which is ended 10 s after
	// SIGTERM.
	jobDrain = "8s"
)

// readSettings derives the settings from a config. The name is the file's, for messages.
// Problems are Invalid; those of one kind are reported together.
func readSettings(name string, src []byte) (settings, error) {
	d, err := config.ParseDeployment(name, src)
	if err != nil {
		return settings{}, err
	}
	if d.Cloud.Provider != config.ProviderGCP {
		return settings{}, &fault.Error{Kind: fault.Invalid, Op: "read " + name,
			Err:    fault.New(fault.Invalid, "it describes no installation on Google Cloud"),
			Remedy: fmt.Sprintf("add [cloud] with provider = %q, project, region, and [cloud.gcs] with a bucket", "gcp")}
	}
	short, err := config.Compact(src)
	if err != nil {
		return settings{}, err
	}
	if err := check(d, len(short)); err != nil {
		return settings{}, fault.WithKind(fault.Invalid, err, "read %s", name)
	}
	forJobs, err := withDrainBudget(short, jobDrain)
	if err != nil {
		return settings{}, err
	}
	c := d.Cloud
	s := settings{
		Project: c.Project, Region: c.Region, Name: c.Name,
		Bucket: c.GCS.Bucket, Prefix: c.GCS.Prefix, Database: c.Firestore.Database,
		Topics: c.PubSub.Prefix, PushAccount: c.PubSub.PushAccount,
		Secrets: append([]string{}, d.Secrets...), SecretPrefix: c.Secrets.Prefix,
		Config: string(short), JobConfig: forJobs, Pools: map[string]pool{},
		MaxMachines: c.Fleet.MaxMachines, InstanceTypes: c.Fleet.InstanceTypes, EngineImage: c.Fleet.EngineImage,
	}
	for _, p := range d.InferPools() {
		s.Pools[p.Name] = pool{p.Model, p.Revision, cmp.Or(p.Machines, config.MachinesGroup),
			cmp.Or(p.Provisioning, config.ProvisioningSpot)}
	}
	return s, nil
}

// check returns all problems of a config that is otherwise valid, or nil. size is that of
// the config without comments.
func check(d config.Deployment, size int) error {
	var problems []string
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if size > maxConfig {
		add("it has %d bytes without its comments, and a function's environment has room for %d: "+
			"leave out settings that have their default", size, maxConfig)
	}
	if len(d.Cloud.Name) < minName {
		add("cloud.name is %q: use at least %d characters", d.Cloud.Name, minName)
	}
	if n := len(d.Cloud.GCS.Bucket); n > maxBucketName {
		add("cloud.gcs.bucket has %d characters: use at most %d, because the bucket of programs adds -programs",
			n, maxBucketName)
	}
	if len(d.InferPools()) == 0 {
		add("it has no [[pool]] that answers prompts: add one, with the name of a model")
	}
	if problems == nil {
		return nil
	}
	return fault.New(fault.Invalid, "%s", strings.Join(problems, "; "))
}

// withDrainBudget returns a config with another drain budget of workers.
func withDrainBudget(src []byte, budget string) (string, error) {
	var tree map[string]any
	if err := toml.Unmarshal(src, &tree); err != nil {
		return "", fault.WithKind(fault.Invalid, err, "read the config again")
	}
	worker, _ := tree["worker"].(map[string]any)
	if worker == nil {
		worker = map[string]any{}
		tree["worker"] = worker
	}
	worker["drain_budget"] = budget
	var out bytes.Buffer
	if err := toml.NewEncoder(&out).Encode(tree); err != nil {
		return "", fault.WithKind(fault.Invalid, err, "encode the config")
	}
	short, err := config.Compact(out.Bytes())
	return string(short), err
}
