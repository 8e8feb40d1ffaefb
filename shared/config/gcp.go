package config

import (
	"cmp"
	"regexp"
	"strings"
)

// ProviderGCP is the value of cloud.provider for Google Cloud.
const ProviderGCP = "gcp"

// GCS names the bucket of Cloud Storage, which is required.
type GCS struct {
	Bucket string `toml:"bucket"`
	Prefix string `toml:"prefix"` // precedes all object keys; may be empty. Example: "team-a/"
}

// Firestore names the database of the documents.
type Firestore struct {
	Database string `toml:"database"` // default: cloud.name
}

// PubSub holds the names of topics and subscriptions.
type PubSub struct {
	Prefix string `toml:"prefix"` // of their names; default: cloud.name and "-"
	// PushAccount is the service account of the tokens with which Pub/Sub and Cloud
	// Scheduler call the functions. Default: "<cloud.name>-push" of the project.
	PushAccount string `toml:"push_account"`
}

var (
	gcpProject      = regexp.MustCompile(`^[a-z][a-z0-9-]{4,28}[a-z0-9]$`)
	gcpRegion       = regexp.MustCompile(`^[a-z]+(-[a-z]+)+[0-9]{1,2}$`)
	gcpMachineType  = regexp.MustCompile(`^[a-z][a-z0-9]*-[a-z]+-[0-9]+g?$`)
	gcpImage        = regexp.MustCompile(`^projects/[a-z0-9.:-]+/global/images/(family/)?[a-z0-9-]{1,63}$`)
	gcpLabelKey     = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)
	gcpLabelValue   = regexp.MustCompile(`^[a-z0-9_-]{0,63}$`)
	gcsBucket       = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{1,61}[a-z0-9]$`)
	firestoreName   = regexp.MustCompile(`^(\(default\)|[a-z][a-z0-9-]{2,61}[a-z0-9])$`)
	pubsubPrefix    = regexp.MustCompile(`^[a-z][a-z0-9-]{0,10}$`)
	serviceAccount  = regexp.MustCompile(`^[a-z0-9-]{1,63}@[a-z0-9.-]{1,100}\.gserviceaccount\.com$`)
	secretNamesRule = regexp.MustCompile(`^[a-zA-Z0-9_-]{0,100}$`)
)

// minDatabaseName is the minimum length of the name of a Firestore database.
const minDatabaseName = 4

func deriveGCP(d *Deployment) {
	w := &d.Cloud
	d.Bucket = w.GCS.Bucket
	w.Firestore.Database = cmp.Or(w.Firestore.Database, w.Name)
	w.PubSub.Prefix = cmp.Or(w.PubSub.Prefix, w.Name+"-")
	w.PubSub.PushAccount = cmp.Or(w.PubSub.PushAccount, w.Name+"-push@"+w.Project+".iam.gserviceaccount.com")
	w.Secrets.Prefix = cmp.Or(w.Secrets.Prefix, w.Name+"-")
}

func checkGCP(w Cloud, c *checker, at string) {
	switch {
	case w.Project == "":
		c.add(at+".project", "missing: name the project by its id, such as %q", "acme-ml")
	case !gcpProject.MatchString(w.Project):
		c.add(at+".project", "%s is not the id of a project: write its id, not its name or number", quote(w.Project))
	default:
		c.pattern(at+".pubsub.push_account", w.PubSub.PushAccount, serviceAccount,
			`write a service account's address, such as "rollout-push@acme-ml.iam.gserviceaccount.com"`)
	}
	if w.Region == "" {
		c.add(at+".region", "missing: name the region, such as %q", "us-central1")
	} else if !gcpRegion.MatchString(w.Region) {
		c.add(at+".region", "%s is not a region: write one such as %q", quote(w.Region), "us-central1")
	}
	w.GCS.check(c, at+".gcs")
	if w.Firestore.Database == w.Name && len(w.Name) < minDatabaseName {
		c.add(at+".name", "%s is also the name of the database, which needs at least %d characters: "+
			"use a longer one, or name the database in [cloud.firestore]", quote(w.Name), minDatabaseName)
	} else {
		c.pattern(at+".firestore.database", w.Firestore.Database, firestoreName,
			`use 4 to 63 of a-z, 0-9 and -, and begin with a letter; or "(default)"`)
	}
	prefix := w.PubSub.Prefix
	c.pattern(at+".pubsub.prefix", prefix, pubsubPrefix, "use 1 to 11 of a-z, 0-9 and -, and begin with a letter")
	if strings.HasPrefix(prefix, "goog") {
		c.add(at+".pubsub.prefix", "%s begins with characters that Google reserves: use another prefix", quote(prefix))
	}
	c.pattern(at+".secrets.prefix", w.Secrets.Prefix, secretNamesRule, "use at most 100 of letters, digits, - and _")
}

func (g GCS) check(c *checker, at string) {
	switch {
	case g.Bucket == "":
		c.add(at+".bucket", "missing: name the bucket; its name must be unique among all buckets of Cloud Storage")
	case !gcsBucket.MatchString(g.Bucket):
		c.add(at+".bucket", "%s is not a valid bucket name: use 3 to 63 of a-z, 0-9, - and _, and begin and end with a "+
			"letter or digit", quote(g.Bucket))
	case strings.HasPrefix(g.Bucket, "goog"), strings.Contains(g.Bucket, "google"):
		c.add(at+".bucket", "%s has characters that Google reserves: choose another name", quote(g.Bucket))
	}
	c.keyPrefix(at+".prefix", g.Prefix)
}
