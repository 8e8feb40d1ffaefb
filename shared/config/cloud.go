package config

import "slices"

// Cloud says where an installation in a cloud is. The zero value is an
// installation on one machine.
//
// Region, Name, Secrets and Fleet mean the same at every provider; the other
// tables are those of one provider, and stand in the file named after it.
type Cloud struct {
	Provider string       `toml:"provider"` // a name of Providers
	Region   string       `toml:"region"`   // Example: "us-east-1"
	Name     string       `toml:"name"`     // begins the names of functions and fleets; "rollout"
	S3       S3           `toml:"s3"`
	DynamoDB DynamoDB     `toml:"dynamodb"`
	SQS      SQS          `toml:"sqs"`
	Secrets  CloudSecrets `toml:"secrets"`
	Fleet    Fleet        `toml:"fleet"`
}

// CloudSecrets says which secrets may be read, beside the deployment's.
type CloudSecrets struct {
	Allowlist []string `toml:"allowlist"`
	Prefix    string   `toml:"prefix"` // begins their names in the cloud; the cloud's name and "/" if unset
}

// Fleet bounds the machines of a pool.
type Fleet struct {
	MaxMachines      int      `toml:"max_machines"`       // of each pool; 8
	ShardsPerMachine int      `toml:"shards_per_machine"` // open shards that justify one machine; 4
	IdleTimeout      Duration `toml:"idle"`               // a worker without work leaves after it; 5m
	InstanceTypes    []string `toml:"instance_types"`     // the provider starts any of them
	EngineImage      string   `toml:"engine_image"`       // container that serves the pool's model
}

// Configured reports whether the installation is in a cloud.
func (c Cloud) Configured() bool { return len(c.Provider) > 0 }

// FunctionName is the name of a function in its cloud, such as "rollout-plan".
func (c Cloud) FunctionName(name string) string { return c.Name + "-" + name }

// FleetName is the name of a pool's group of machines, such as "rollout-small".
func (c Cloud) FleetName(pool string) string { return c.Name + "-" + pool }

// normalize sets the defaults that depend on the provider before the file's own
// values are bound, and refuses tables that contradict the provider.
func (d *Deployment) normalize(c *checker, tree map[string]any) {
	x, ok := tree["cloud"]
	if !ok {
		return
	}
	table, ok := x.(map[string]any)
	if !ok {
		return // the binder reports it
	}
	name, named := table["provider"]
	c.foreignTables(table, name)
	if !named {
		c.add("cloud.provider", "missing: name the provider, such as provider = %q, or remove [cloud] for an installation on this machine", Providers()[0])
		return
	}
	p, ok := providerOf(name)
	if !ok {
		return // check reports it
	}
	d.Health, d.Worker.DrainBudget = p.health(), p.drainBudget
	d.Cloud = p.cloud()
	if _, ok := tree["bucket"]; ok {
		c.add("bucket", "%s names the bucket: remove this one", p.bucketKey)
	}
}

// derive sets what is left out of [cloud] from what is there.
func (d *Deployment) derive() {
	if p, ok := providerOf(d.Cloud.Provider); ok {
		p.derive(d)
	}
}

// allow merges both allowlists into the deployment's, the cloud's first.
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
