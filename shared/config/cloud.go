package config

import (
	"cmp"
	"slices"
	"time"
)

// ProviderAWS is the only provider of this version; no [cloud] is a laptop.
const ProviderAWS = "aws"

// Cloud says where an installation in a cloud is. The zero value is a laptop.
type Cloud struct {
	Provider string       `toml:"provider"`
	Region   string       `toml:"region"` // "us-east-1"
	Name     string       `toml:"name"`   // begins the names of functions and fleets; "rollout"
	S3       S3           `toml:"s3"`
	DynamoDB DynamoDB     `toml:"dynamodb"`
	SQS      SQS          `toml:"sqs"`
	Secrets  CloudSecrets `toml:"secrets"`
	Fleet    Fleet        `toml:"fleet"`
}

// S3 names the bucket, which is required.
type S3 struct {
	Bucket string `toml:"bucket"`
	Prefix string `toml:"prefix"` // all keys begin with it, such as "team-a/"; "" is none
}

// DynamoDB names the table of the documents.
type DynamoDB struct {
	Table string `toml:"table"` // the cloud's name if unset
}

// SQS says what the names of queues begin with.
type SQS struct {
	Prefix string `toml:"prefix"` // the cloud's name and "-" if unset
}

// CloudSecrets says which secrets may be read, beside the deployment's.
type CloudSecrets struct {
	Allowlist []string `toml:"allowlist"`
	Prefix    string   `toml:"prefix"` // begins their names in the cloud; the cloud's name and "/" if unset
}

// Fleet bounds the machines of a pool.
type Fleet struct {
	MaxMachines      int      `toml:"max_machines"`       // of each pool; 8
	ShardsPerMachine int      `toml:"shards_per_machine"` // open shards that are worth a machine; 4
	IdleTimeout      Duration `toml:"idle"`               // a worker without work leaves after it; 5m
	InstanceTypes    []string `toml:"instance_types"`     // any of them will do
	EngineImage      string   `toml:"engine_image"`       // of the container that serves the pool's model
}

// DefaultFleet returns at most 8 machines a pool, one for every 4 shards, with
// the smallest GPUs of three generations and vLLM.
func DefaultFleet() Fleet {
	return Fleet{
		MaxMachines:      8,
		ShardsPerMachine: 4,
		IdleTimeout:      Duration(5 * time.Minute),
		InstanceTypes:    []string{"g6.xlarge", "g5.xlarge", "g4dn.xlarge"},
		EngineImage:      "vllm/vllm-openai:v0.11.0",
	}
}

// DefaultCloudHealth returns the timings of workers on machines of their own: a
// heartbeat every 10 s, self-fencing after 40 s, failure after 60 s, 2 s of
// clock skew. Each heartbeat costs a write.
func DefaultCloudHealth() Health {
	return Health{
		Interval:       Duration(10 * time.Second),
		SelfFence:      Duration(40 * time.Second),
		FailureTimeout: Duration(60 * time.Second),
		SkewBudget:     Duration(2 * time.Second),
	}
}

// cloudDrain is half of the notice that spot machines get.
const cloudDrain = Duration(60 * time.Second)

// FunctionName is the name of the function in its cloud, such as "rollout-plan".
func (c Cloud) FunctionName(name string) string { return c.Name + "-" + name }

// FleetName is the name of a pool's group of machines, such as "rollout-small".
func (c Cloud) FleetName(pool string) string { return c.Name + "-" + pool }

// normalize sets the defaults that depend on the provider, so that the file's
// own values come on top of them, and refuses what they make meaningless.
func (d *Deployment) normalize(c *checker, tree map[string]any) {
	x, ok := tree["cloud"]
	if !ok {
		return
	}
	table, ok := x.(map[string]any)
	if !ok {
		return // the binder says so
	}
	for _, key := range []string{"gcs", "gcp", "pubsub", "firestore"} {
		if _, ok := table[key]; ok {
			c.add("cloud."+key, "is a table of Google Cloud, and an installation has one provider, in this version %q: remove it", ProviderAWS)
		}
	}
	if _, ok := table[ProviderAWS]; ok {
		c.add("cloud."+ProviderAWS, "the provider's tables stand in [cloud] itself: write [cloud.s3], [cloud.dynamodb], [cloud.sqs] or [cloud.secrets]")
	}
	provider, named := table["provider"]
	if !named {
		c.add("cloud.provider", "missing: say whose cloud it is, provider = %q, or remove [cloud] for an installation on this machine", ProviderAWS)
		return
	}
	if provider != ProviderAWS {
		return // check says so
	}
	d.Health, d.Worker.DrainBudget = DefaultCloudHealth(), cloudDrain
	d.Cloud = Cloud{Name: "rollout", Fleet: DefaultFleet()}
	if _, ok := tree["bucket"]; ok {
		c.add("bucket", "cloud.s3.bucket names the bucket: remove this one")
	}
}

// derive sets what is left out of [cloud] from what is there.
func (d *Deployment) derive() {
	if d.Cloud.Provider != ProviderAWS {
		return
	}
	w := &d.Cloud
	d.Bucket = w.S3.Bucket
	w.DynamoDB.Table = cmp.Or(w.DynamoDB.Table, w.Name)
	w.SQS.Prefix = cmp.Or(w.SQS.Prefix, w.Name+"-")
	w.Secrets.Prefix = cmp.Or(w.Secrets.Prefix, w.Name+"/")
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
