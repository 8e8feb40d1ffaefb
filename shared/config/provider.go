package config

import (
	"maps"
	"regexp"
	"slices"
)

// provider holds the defaults and checks of one cloud's config. Each provider has
// one file, named after it, with the types of its tables and this value.
type provider struct {
	name   string
	tables []string // tables and keys of [cloud] that belong to this provider alone
	// cloud returns the table [cloud] with the provider's defaults.
	cloud func() Cloud
	// health returns the default timings of workers on the provider's machines.
	health func() Health
	// drainBudget is the default drain budget. It must be shorter than the
	// preemption notice of the provider's spot machines.
	drainBudget Duration
	// derive fills missing keys from present ones.
	derive func(*Deployment)
	// check adds the problems of the provider's own keys; at is the path of w.
	check func(w Cloud, c *checker, at string)
	// bucketKey is the key that names the bucket. Example: "cloud.s3.bucket".
	bucketKey string

	// The rest belongs to machines: to [cloud.fleet], and to the pools.
	instanceType       *regexp.Regexp // matches the names of instance types
	instanceTypeRemedy string         // the remedy for a name that does not match
	maxInstanceTypes   int            // maximum number of types in one group of machines
	trainingTypes      []string       // default types of training pools; they have no GPU
	armType            *regexp.Regexp // matches types whose processors can't run the worker program
	jobs               bool           // a pool's machines may be MachinesCloudRun
	provisioning       []string       // how a pool's machines may be bought
	image              *regexp.Regexp // matches the names of machine images
	imageRemedy        string         // the remedy for a name that does not match
	tagKey, tagValue   *regexp.Regexp // match the tags of machines
	tagRemedy          string         // the remedy for one that does not match
	ownTags            string         // begins the tags that the provider sets
	scheme             string         // begins addresses of objects. Example: "s3://"
	// lacks says what to do instead of the keys of PoolMachines that the provider can't do.
	lacks map[string]string
}

// providers lists the clouds that this version supports.
func providers() []provider { return []provider{aws(), gcp()} }

// Providers returns the values of cloud.provider that this version supports.
func Providers() (names []string) {
	for _, p := range providers() {
		names = append(names, p.name)
	}
	return names
}

// providerOf returns the provider with that name. The name may be a value of any
// TOML type.
func providerOf(name any) (provider, bool) {
	for _, p := range providers() {
		if p.name == name {
			return p, true
		}
	}
	return provider{}, false
}

// foreignTables adds a problem for each table of [cloud] that belongs to another
// provider, and for each table named after a provider.
func (c *checker) foreignTables(table map[string]any, provider any) {
	owners := map[string]string{}
	for _, p := range providers() {
		for _, key := range p.tables {
			owners[key] = p.name
		}
	}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		if owner := owners[key]; owner != "" && provider != nil && provider != owner {
			if _, known := providerOf(provider); known {
				c.add("cloud."+key, "belongs to the provider %q, and cloud.provider is %q: remove it", owner, provider)
			}
		}
		if _, wrapped := table[key].(map[string]any); !wrapped {
			continue
		}
		if _, ok := providerOf(key); ok {
			c.add("cloud."+key, "a provider's tables belong directly in [cloud], such as [cloud.s3]: move them there")
		}
	}
}
