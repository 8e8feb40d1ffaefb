package config

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

const (
	maxMachines      = 1000
	maxInstanceTypes = 40 // of a group with mixed instances
	maxCloudPrefix   = 200
	maxShardsEach    = 100_000
	leastTable       = 3 // letters of a table's name
)

// Patterns of names that end in policies, in names of resources and in what
// machines run when they start: none has room for a wildcard or a quote.
var (
	regionName   = regexp.MustCompile(`^[a-z]{2,3}(-[a-z]+)+-[0-9]{1,2}$`)
	cloudName    = regexp.MustCompile(`^[a-z][a-z0-9-]{0,9}$`)
	queuePrefix  = regexp.MustCompile(`^[a-z][a-z0-9-]{0,10}$`)
	bucketName   = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$`)
	tableName    = regexp.MustCompile(`^[a-zA-Z0-9_.-]{3,255}$`)
	folders      = regexp.MustCompile(`^([a-zA-Z0-9_.-]+/)+$`)
	instanceType = regexp.MustCompile(`^[a-z][a-z0-9-]*\.[a-z0-9-]+$`)
	imageName    = regexp.MustCompile(`^[a-z0-9][a-zA-Z0-9._/:@-]{0,254}$`)
)

// ownFolders are those of an installation's bucket: as a part of a prefix they
// would put one installation's answers among another's prompts.
var ownFolders = []string{"prompts", "runs", "work", "cas", "pending"}

func (w Cloud) check(c *checker, at string) {
	switch w.Provider {
	case "":
		return
	case ProviderAWS:
	case "gcp":
		c.add(at+".provider", "%q is not available in this version: use %q", w.Provider, ProviderAWS)
		return
	default:
		c.oneOf(at+".provider", "provider", w.Provider, []string{ProviderAWS})
		return
	}
	if w.Region == "" {
		c.add(at+".region", "missing: name the region, such as %q", "us-east-1")
	} else if !regionName.MatchString(w.Region) {
		c.add(at+".region", "%s is no region: write one such as %q", quote(w.Region), "us-east-1")
	}
	c.pattern(at+".name", w.Name, cloudName, "use 1 to 10 of a-z, 0-9 and -, and begin with a letter")
	w.S3.check(c, at+".s3")
	if w.DynamoDB.Table == w.Name && len(w.Name) < leastTable {
		c.add(at+".name", "%s is also the table's name, which has %d letters or more: use a longer one, or name the table in [cloud.dynamodb]", quote(w.Name), leastTable)
	} else {
		c.pattern(at+".dynamodb.table", w.DynamoDB.Table, tableName, "use 3 to 255 of letters, digits, _, . and -")
	}
	c.pattern(at+".sqs.prefix", w.SQS.Prefix, queuePrefix, "use 1 to 11 of a-z, 0-9 and -, and begin with a letter")
	w.Secrets.check(c, at+".secrets")
	w.Fleet.check(c, at+".fleet")
}

func (s S3) check(c *checker, at string) {
	const rules = "use 3 to 63 of a-z, 0-9 and -, and begin and end with a letter or digit"
	_, notAddress := netip.ParseAddr(s.Bucket)
	switch {
	case s.Bucket == "":
		c.add(at+".bucket", "missing: name the bucket, which no other in the world may be called")
	case notAddress == nil || !bucketName.MatchString(s.Bucket):
		c.add(at+".bucket", "%s is no name of a bucket: %s", quote(s.Bucket), rules)
	case reserved(s.Bucket):
		c.add(at+".bucket", "%s begins or ends as only S3's own names may: choose another", quote(s.Bucket))
	}
	c.folders(at+".prefix", s.Prefix)
	for _, part := range strings.Split(s.Prefix, "/") {
		if slices.Contains(ownFolders, part) {
			c.add(at+".prefix", "%s is a folder that rollout makes below the prefix: use other names", quote(part+"/"))
		}
	}
}

// reserved reports whether S3 keeps the name for itself.
func reserved(bucket string) bool {
	for _, begin := range []string{"xn--", "sthree-", "amzn-s3-demo-"} {
		if strings.HasPrefix(bucket, begin) {
			return true
		}
	}
	for _, end := range []string{"-s3alias", "--ol-s3", "--x-s3", "--table-s3"} {
		if strings.HasSuffix(bucket, end) {
			return true
		}
	}
	return false
}

func (s CloudSecrets) check(c *checker, at string) {
	for i, name := range s.Allowlist {
		c.label(element(at+".allowlist", i), name, maxSecret, "")
	}
	c.folders(at+".prefix", s.Prefix)
}

func (f Fleet) check(c *checker, at string) {
	c.integer(at+".max_machines", &f.MaxMachines, 1, maxMachines, "")
	c.integer(at+".shards_per_machine", &f.ShardsPerMachine, 1, maxShardsEach, "")
	c.positive(at+".idle", f.IdleTimeout)
	if n := len(f.InstanceTypes); n < 1 || n > maxInstanceTypes {
		c.add(at+".instance_types", "must be 1 to %d types, are %d", maxInstanceTypes, n)
		return
	}
	for i, name := range f.InstanceTypes {
		field := element(at+".instance_types", i)
		c.pattern(field, name, instanceType, `write one such as "g6.xlarge"`)
		if slices.Contains(f.InstanceTypes[:i], name) {
			c.add(field, "%s is there already: name each type once", quote(name))
		}
	}
	c.pattern(at+".engine_image", f.EngineImage, imageName, `write one such as "vllm/vllm-openai:v0.11.0"`)
}

// folders checks what keys or names begin with: nothing, or whole folders.
func (c *checker) folders(field, prefix string) {
	switch {
	case prefix == "":
	case len(prefix) > maxCloudPrefix:
		c.add(field, "has %d bytes, at most %d are allowed", len(prefix), maxCloudPrefix)
	case !strings.HasSuffix(prefix, "/"):
		c.add(field, "must end with \"/\", is %s", quote(prefix))
	case !folders.MatchString(prefix) || slices.ContainsFunc(strings.Split(prefix, "/"), func(part string) bool { return part == "." || part == ".." }):
		c.add(field, "%s is no prefix: write folders of letters, digits, -, _ and ., such as \"team-a/\"", quote(prefix))
	}
}

func (c *checker) pattern(field, s string, rule *regexp.Regexp, remedy string) {
	if !rule.MatchString(s) {
		c.add(field, "%s can't be used here: %s", quote(s), remedy)
	}
}
