package config

import (
	"cmp"
	"net/netip"
	"regexp"
	"strings"
)

// ProviderAWS is the value of cloud.provider for Amazon Web Services.
const ProviderAWS = "aws"

// S3 names the bucket, which is required.
type S3 struct {
	Bucket string `toml:"bucket"`
	Prefix string `toml:"prefix"` // precedes all object keys; may be empty. Example: "team-a/"
}

// DynamoDB names the table of the documents.
type DynamoDB struct {
	Table string `toml:"table"` // default: cloud.name
}

// SQS holds the prefix of the names of queues.
type SQS struct {
	Prefix string `toml:"prefix"` // default: cloud.name and "-"
}

// minTableName is the minimum length of a DynamoDB table's name.
const minTableName = 3

var (
	awsRegion       = regexp.MustCompile(`^[a-z]{2,3}(-[a-z]+)+-[0-9]{1,2}$`)
	awsInstanceType = regexp.MustCompile(`^[a-z][a-z0-9-]*\.[a-z0-9-]+$`)
	s3Bucket        = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$`)
	dynamoTable     = regexp.MustCompile(`^[a-zA-Z0-9_.-]{3,255}$`)
	awsImage        = regexp.MustCompile(`^(ami-[0-9a-f]{8,17}|(/[a-zA-Z0-9_.-]+)+)$`)
	awsTagKey       = regexp.MustCompile(`^[a-zA-Z0-9 +=._:/@-]{1,128}$`)
	awsTagValue     = regexp.MustCompile(`^[a-zA-Z0-9 +=._:/@-]{0,256}$`)
	sqsPrefix       = regexp.MustCompile(`^[a-z][a-z0-9-]{0,10}$`)
)

func deriveAWS(d *Deployment) {
	w := &d.Cloud
	d.Bucket = w.S3.Bucket
	w.DynamoDB.Table = cmp.Or(w.DynamoDB.Table, w.Name)
	w.SQS.Prefix = cmp.Or(w.SQS.Prefix, w.Name+"-")
	w.Secrets.Prefix = cmp.Or(w.Secrets.Prefix, w.Name+"/")
}

func checkAWS(w Cloud, c *checker, at string) {
	if w.Region == "" {
		c.add(at+".region", "missing: name the region, such as %q", "us-east-1")
	} else if !awsRegion.MatchString(w.Region) {
		c.add(at+".region", "%s is not a region: write one such as %q", quote(w.Region), "us-east-1")
	}
	w.S3.check(c, at+".s3")
	if w.DynamoDB.Table == w.Name && len(w.Name) < minTableName {
		c.add(at+".name", "%s is also the name of the table, which needs at least %d characters: "+
			"use a longer one, or name the table in [cloud.dynamodb]", quote(w.Name), minTableName)
	} else {
		c.pattern(at+".dynamodb.table", w.DynamoDB.Table, dynamoTable, "use 3 to 255 of letters, digits, _, . and -")
	}
	c.pattern(at+".sqs.prefix", w.SQS.Prefix, sqsPrefix, "use 1 to 11 of a-z, 0-9 and -, and begin with a letter")
	c.folders(at+".secrets.prefix", w.Secrets.Prefix)
}

func (s S3) check(c *checker, at string) {
	const rules = "use 3 to 63 of a-z, 0-9 and -, and begin and end with a letter or digit"
	_, notAddress := netip.ParseAddr(s.Bucket)
	switch {
	case s.Bucket == "":
		c.add(at+".bucket", "missing: name the bucket; its name must be unique among all buckets of S3")
	case notAddress == nil || !s3Bucket.MatchString(s.Bucket):
		c.add(at+".bucket", "%s is not a valid bucket name: %s", quote(s.Bucket), rules)
	case reservedByS3(s.Bucket):
		c.add(at+".bucket", "%s begins or ends with characters that S3 reserves: choose another name", quote(s.Bucket))
	}
	c.keyPrefix(at+".prefix", s.Prefix)
}

// reservedByS3 reports whether the name begins or ends with characters that S3
// reserves.
func reservedByS3(bucket string) bool {
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

// PrivateImage is an image in a private registry of AWS, whose password a machine gets with
// its role.
type PrivateImage struct {
	Registry string // the registry's host name
	Account  string // of the registry
	Region   string // of the registry
	Name     string // of the repository. Example: "team/vllm"
}

// privateImage matches the address of an image in a registry of AWS. The public gallery,
// public.ecr.aws, needs no password.
var privateImage = regexp.MustCompile(
	`^(([0-9]{12})\.dkr\.ecr(?:-fips)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?)/([a-z0-9._/-]+)(?:[:@].*)?$`)

// PrivateImage returns where EngineImage is, if it is in a private registry of AWS.
func (m PoolMachines) PrivateImage() (PrivateImage, bool) {
	p := privateImage.FindStringSubmatch(m.EngineImage)
	if p == nil {
		return PrivateImage{}, false
	}
	return PrivateImage{Registry: p[1], Account: p[2], Region: p[3], Name: p[4]}, true
}

// PasswordCommand returns the command that prints the registry's password on a machine. Its
// words consist of letters, digits and hyphens.
func (i PrivateImage) PasswordCommand() string {
	return "aws ecr get-login-password --region " + i.Region
}

// PrivateImageUser is the name that goes with the password.
const PrivateImageUser = "AWS"
