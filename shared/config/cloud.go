package config

import "slices"

// Cloud describes an installation in a cloud. The zero value stands for an
// installation on one machine.
//
// Region, Name, Secrets and Fleet mean the same at every provider. Each of the
// other tables belongs to one provider; its type is in the file named after the
// provider.
type Cloud struct {
	Provider  string       `toml:"provider"` // one of Providers
	Project   string       `toml:"project"`  // the id of Google Cloud's project; nothing at other providers
	Region    string       `toml:"region"`   // Example: "us-east-1"
	Name      string       `toml:"name"`     // prefix of the names of functions and fleets; default: "rollout"
	S3        S3           `toml:"s3"`
	DynamoDB  DynamoDB     `toml:"dynamodb"`
	SQS       SQS          `toml:"sqs"`
	GCS       GCS          `toml:"gcs"`
	Firestore Firestore    `toml:"firestore"`
	PubSub    PubSub       `toml:"pubsub"`
	Secrets   CloudSecrets `toml:"secrets"`
	Fleet     Fleet        `toml:"fleet"`
}

// CloudSecrets lists secrets that may be read, in addition to Deployment.Secrets.
type CloudSecrets struct {
	Allowlist []string `toml:"allowlist"`
	// Prefix begins their names in the cloud's store. Default: cloud.name and "/" or,
	// where names have no slash, "-".
	Prefix string `toml:"prefix"`
}

// Fleet bounds and describes the machines of a pool.
type Fleet struct {
	MaxMachines      int      `toml:"max_machines"`       // of each pool; default: 8
	ShardsPerMachine int      `toml:"shards_per_machine"` // open shards for which one machine starts; default: 4
	IdleTimeout      Duration `toml:"idle"`               // a worker without work exits after it; default: 5m
	BootPause        Duration `toml:"boot_pause"`         // after a failed boot; doubles up to 15m; default: 1m
	InstanceTypes    []string `toml:"instance_types"`     // the provider may start any of them
	EngineImage      string   `toml:"engine_image"`       // container image that serves the pool's model
}

// Configured reports whether the installation is in a cloud.
func (c Cloud) Configured() bool { return len(c.Provider) > 0 }

// FunctionName returns the name of a function in the cloud, such as "rollout-plan".
func (c Cloud) FunctionName(name string) string { return c.Name + "-" + name }

// EventBusName returns the name of the cloud's bus of events for people, such as
// "rollout-events".
func (c Cloud) EventBusName() string { return c.Name + "-events" }

// FleetName returns the name of a pool's group of machines, such as "rollout-small".
func (c Cloud) FleetName(pool string) string { return c.Name + "-" + pool }

// normalize replaces shorthands, and sets the provider's defaults, before the binder
// writes the file's values over them. It reports tables that contradict the provider.
func (d *Deployment) normalize(c *checker, tree map[string]any) {
	normalizeRequest(c, tree["engine"], "engine")
	if engines, ok := tree["engines"].(map[string]any); ok {
		for _, name := range sortedKeys(engines) {
			normalizeRequest(c, engines[name], join("engines", name))
		}
	}
	if defaults, ok := tree["defaults"].(map[string]any); ok {
		normalizeRequest(c, defaults["request"], "defaults.request")
		normalizePriority(c, defaults["run"], "defaults.run")
	}
	x, ok := tree["cloud"]
	if !ok {
		return
	}
	table, ok := x.(map[string]any)
	if !ok {
		return // the binder reports the wrong type
	}
	name, named := table["provider"]
	c.foreignTables(table, name)
	if !named {
		c.add("cloud.provider", "missing: name the provider, such as provider = %q, "+
			"or remove [cloud] for an installation on this machine", Providers()[0])
		return
	}
	p, ok := providerOf(name)
	if !ok {
		return // check reports the unknown provider
	}
	d.Health, d.Worker.DrainBudget = p.health(), p.drainBudget
	d.Cloud = p.cloud()
	if _, ok := tree["bucket"]; ok {
		c.add("bucket", "%s names the bucket: remove this key", p.bucketKey)
	}
}

// derive fills the missing keys of [cloud] from the present ones.
func (d *Deployment) derive() {
	if p, ok := providerOf(d.Cloud.Provider); ok {
		p.derive(d)
	}
}

// allow merges the allowlist of [cloud] into d.Secrets, before its own entries.
func (d *Deployment) allow() {
	if len(d.Cloud.Secrets.Allowlist) == 0 {
		return
	}
	all := slices.Clone(d.Cloud.Secrets.Allowlist)
	for _, name := range d.Secrets {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	d.Secrets = all
}
