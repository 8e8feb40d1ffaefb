package config

import (
	"maps"
	"regexp"
	"slices"
)

// provider is what the config of one cloud adds to what all clouds share. Each
// provider has one file, named after it, with its tables and this value.
type provider struct {
	name   string
	tables []string // of [cloud], that are this provider's own
	// cloud returns the table [cloud] with the provider's defaults.
	cloud func() Cloud
	// health returns the default timings of its machines' workers.
	health func() Health
	// drainBudget is a default within the notice that its spot machines get.
	drainBudget Duration
	// derive sets what the file left out from what it says.
	derive func(*Deployment)
	// check reports the problems of the provider's own keys; at is the path of w.
	check func(w Cloud, c *checker, at string)
	// bucketKey names the bucket. Example: "cloud.s3.bucket".
	bucketKey string

	instanceType       *regexp.Regexp
	instanceTypeRemedy string
	maxInstanceTypes   int // in a group of machines
}

// providers lists the clouds that this version has.
func providers() []provider { return []provider{aws()} }

// Providers returns the values of cloud.provider that this version has.
func Providers() (names []string) {
	for _, p := range providers() {
		names = append(names, p.name)
	}
	return names
}

// providerOf finds the provider of that name, which may be any value of a file.
func providerOf(name any) (provider, bool) {
	for _, p := range providers() {
		if p.name == name {
			return p, true
		}
	}
	return provider{}, false
}

// foreignTables reports the tables of [cloud] that are another provider's, and
// those that wrap a provider's tables.
func (c *checker) foreignTables(table map[string]any, provider any) {
	own := map[string]string{"gcs": "gcp", "pubsub": "gcp", "firestore": "gcp"} // of the cloud that is to come
	for _, p := range providers() {
		for _, key := range p.tables {
			own[key] = p.name
		}
	}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		if of := own[key]; of != "" && provider != nil && provider != of {
			if _, known := providerOf(provider); known {
				c.add("cloud."+key, "is a table of the provider %q, and this installation is at %q: remove it", of, provider)
			}
		}
		if _, wrapped := table[key].(map[string]any); !wrapped {
			continue
		}
		if _, ok := providerOf(key); ok || key == "gcp" {
			c.add("cloud."+key, "a provider's tables stand in [cloud] itself, as [cloud.s3] does: move them there")
		}
	}
}
