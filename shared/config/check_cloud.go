package config

import (
	"regexp"
	"slices"
	"strings"
)

const (
	maxMachines    = 1000
	maxCloudPrefix = 200
	maxShardsEach  = 100_000
)

// Patterns of names that are copied into policies, into names of resources and
// into the start scripts of machines. They exclude wildcards and quotes.
var (
	cloudName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,9}$`)
	folders   = regexp.MustCompile(`^([a-zA-Z0-9_.-]+/)+$`)
	imageName = regexp.MustCompile(`^[a-z0-9][a-zA-Z0-9._/:@-]{0,254}$`)
)

// ownFolders are the folders that an installation creates in its bucket. Inside
// a prefix they would put one installation's answers among another's prompts.
var ownFolders = []string{"prompts", "runs", "work", "cas", "pending"}

func (w Cloud) check(c *checker, at string) {
	if !w.Configured() {
		return
	}
	p, ok := providerOf(w.Provider)
	if !ok {
		c.oneOf(at+".provider", "provider", w.Provider, Providers())
		return
	}
	c.pattern(at+".name", w.Name, cloudName, "use 1 to 10 of a-z, 0-9 and -, and begin with a letter")
	p.check(w, c, at)
	w.Secrets.check(c, at+".secrets")
	w.Fleet.check(c, at+".fleet", p)
}

func (s CloudSecrets) check(c *checker, at string) {
	for i, name := range s.Allowlist {
		c.label(element(at+".allowlist", i), name, maxSecret, "")
	}
}

func (f Fleet) check(c *checker, at string, p provider) {
	c.integer(at+".max_machines", &f.MaxMachines, 1, maxMachines, "")
	c.integer(at+".shards_per_machine", &f.ShardsPerMachine, 1, maxShardsEach, "")
	c.positive(at+".idle", f.IdleTimeout)
	if d := f.BootPause.Std(); d < minBootPause || d > maxBootPause {
		c.add(at+".boot_pause", "must be between %s and %s, is %s", minBootPause, maxBootPause, d)
	}
	if n := len(f.InstanceTypes); n < 1 || n > p.maxInstanceTypes {
		c.add(at+".instance_types", "must list 1 to %d types, lists %d", p.maxInstanceTypes, n)
		return
	}
	for i, name := range f.InstanceTypes {
		field := element(at+".instance_types", i)
		c.pattern(field, name, p.instanceType, p.instanceTypeRemedy)
		if slices.Contains(f.InstanceTypes[:i], name) {
			c.add(field, "%s is listed twice: name each type once", quote(name))
		}
	}
	c.pattern(at+".engine_image", f.EngineImage, imageName, `write one such as "vllm/vllm-openai:v0.21.0-cu129"`)
}

// keyPrefix checks the prefix of all keys of a bucket.
func (c *checker) keyPrefix(field, prefix string) {
	c.folders(field, prefix)
	for _, part := range strings.Split(prefix, "/") {
		if slices.Contains(ownFolders, part) {
			c.add(field, "%s is a folder that rollout creates below the prefix: use another name", quote(part+"/"))
		}
	}
}

// folders checks a prefix of keys or names: it is empty or ends with "/".
func (c *checker) folders(field, prefix string) {
	isRelative := func(part string) bool { return part == "." || part == ".." }
	switch {
	case prefix == "":
	case len(prefix) > maxCloudPrefix:
		c.add(field, "has %d bytes, at most %d are allowed", len(prefix), maxCloudPrefix)
	case !strings.HasSuffix(prefix, "/"):
		c.add(field, "must end with \"/\", is %s", quote(prefix))
	case !folders.MatchString(prefix) || slices.ContainsFunc(strings.Split(prefix, "/"), isRelative):
		c.add(field, "%s is not a valid prefix: write folders of letters, digits, -, _ and ., such as \"team-a/\"",
			quote(prefix))
	}
}

func (c *checker) pattern(field, s string, rule *regexp.Regexp, remedy string) {
	if !rule.MatchString(s) {
		c.add(field, "%s can't be used here: %s", quote(s), remedy)
	}
}
