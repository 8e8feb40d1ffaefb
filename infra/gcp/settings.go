package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"strings"

	"github.com/BurntSushi/toml"

	"rollout/shared/config"
	"rollout/shared/fault"
)

// settings are the variable settings of variables.tf.
type settings struct {
	Project      string          `json:"project"`
	Region       string          `json:"region"`
	Name         string          `json:"name"`
	Bucket       string          `json:"bucket"`
	Prefix       string          `json:"prefix"`
	Database     string          `json:"database"`
	Topics       string          `json:"topics"` // prefix of their names
	PushAccount  string          `json:"push_account"`
	Secrets      []string        `json:"secrets"`
	SecretPrefix string          `json:"secret_prefix"`
	NotifySecret string          `json:"notify_secret"` // "" posts no events
	Config       string          `json:"config"`
	JobConfig    string          `json:"job_config"`
	Pools        map[string]pool `json:"pools"`
	MaxMachines  int             `json:"max_machines"`
}

// pool is a pool with machines or tasks.
type pool struct {
	Model    string `json:"model"`
	Machines string `json:"machines"` // config.MachinesGroup or config.MachinesCloudRun
	// Provisioning is config.ProvisioningSpot, config.ProvisioningFlexStart or
	// config.ProvisioningStandard.
	Provisioning  string            `json:"provisioning"`
	InstanceTypes []string          `json:"instance_types"` // none of a job
	EngineImage   string            `json:"engine_image"`
	EngineEnv     map[string]string `json:"engine_env"`
	DiskGB        int               `json:"disk_gb"`
	BootSeconds   int               `json:"boot_seconds"` // until the servers are ready
	Image         string            `json:"image"`        // of the machines; "" is machine_image
	Labels        map[string]string `json:"labels"`
	ModelBucket   string            `json:"model_bucket"` // "" if the model lies in no bucket
	ModelFolder   string            `json:"model_folder"`
	Trains        bool              `json:"trains"`
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

// readSettings derives the settings from a config, which it returns as well. The name is the
// file's, for messages. Problems are Invalid; those of one kind are reported together.
func readSettings(name string, src []byte) (settings, config.Deployment, error) {
	d, err := config.ParseDeployment(name, src)
	if err != nil {
		return settings{}, d, err
	}
	if d.Cloud.Provider != config.ProviderGCP {
		return settings{}, d, &fault.Error{Kind: fault.Invalid, Op: "read " + name,
			Err:    fault.New(fault.Invalid, "it describes no installation on Google Cloud"),
			Remedy: fmt.Sprintf("add [cloud] with provider = %q, project, region, and [cloud.gcs] with a bucket", "gcp")}
	}
	short, err := config.Compact(src)
	if err != nil {
		return settings{}, d, err
	}
	if err := check(d, len(short)); err != nil {
		return settings{}, d, fault.WithKind(fault.Invalid, err, "read %s", name)
	}
	forJobs, err := withDrainBudget(short, jobDrain)
	if err != nil {
		return settings{}, d, err
	}
	c := d.Cloud
	s := settings{
		Project: c.Project, Region: c.Region, Name: c.Name,
		Bucket: c.GCS.Bucket, Prefix: c.GCS.Prefix, Database: c.Firestore.Database,
		Topics: c.PubSub.Prefix, PushAccount: c.PubSub.PushAccount,
		Secrets: append([]string{}, d.Secrets...), SecretPrefix: c.Secrets.Prefix, NotifySecret: d.Notify.Secret,
		Config: string(short), JobConfig: forJobs, Pools: map[string]pool{},
		MaxMachines: c.Fleet.MaxMachines,
	}
	for _, p := range d.Pools {
		s.Pools[p.Name] = poolOf(d, p)
	}
	return s, d, nil
}

// poolOf returns what Terraform needs of a pool. Lists and maps are never null, which
// Terraform would not loop over.
func poolOf(d config.Deployment, p config.Pool) pool {
	m := d.MachinesOf(p)
	bucket, folder := p.ModelBucket()
	out := pool{
		Model: p.Model, Machines: cmp.Or(p.Machines, config.MachinesGroup),
		Provisioning: cmp.Or(p.Provisioning, config.ProvisioningSpot), InstanceTypes: []string{},
		EngineImage: m.EngineImage, EngineEnv: map[string]string{}, DiskGB: m.DiskGB,
		BootSeconds: int(m.BootDeadline.Std().Seconds()), Image: m.AMI, Labels: map[string]string{},
		ModelBucket: bucket, ModelFolder: folder, Trains: p.Trains(),
	}
	maps.Copy(out.EngineEnv, m.EngineEnv)
	maps.Copy(out.Labels, m.Tags)
	if out.Machines == config.MachinesGroup {
		out.InstanceTypes = m.InstanceTypes
	}
	return out
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
	if len(d.Pools) == 0 {
		add("it has no [[pool]]: add one, with the name of a model")
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
