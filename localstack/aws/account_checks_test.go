package emulators

import (
	"cmp"
	"errors"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"rollout/localstack/aws/fakeaws"
	"rollout/shared/aws"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
)

// Each case is a healthy account but for one thing, and a check that says so. What follows
// "remedy: " is what to do; "unseen: " is why the check can't be made.
func TestDoctorLooksAtTheAccount(t *testing.T) {
	t.Parallel()
	const (
		one  = "[[pool]]\nname = 'small'\nmodel = 'm'\n"
		two  = one + "[[pool]]\nname = 'list'\nmodel = 'n'\nprovisioning = 'standard'\n"
		big  = "[[pool]]\nname = 'big'\nmodel = 'b'\ninstance_types = ['p5.48xlarge', 'p4d.24xlarge']\n"
		next = "[[pool]]\nname = 'next'\nmodel = 'm'\ninstance_types = ['p6-b200.48xlarge']\n"
		half = "[[pool]]\nname = 'half'\nmodel = 'm'\non_demand_share = 0.5\ninstance_types = ['g6.2xlarge']\n"
		own  = "[[pool]]\nname = 'own'\nmodel = 'm'\nami = 'ami-0aaaaaaaaaaaaaaaa'\n"
		mine = "[[pool]]\nname = 'mine'\nmodel = 'm'\nami = '/acme/gpu'\n"
	)
	for name, c := range map[string]struct {
		pools  string // default: one
		change func(*fakeaws.Account)
		groups func(*fakeaws.Groups)
		check  string
		want   string
		remedy string
	}{
		"whose credentials they are": {check: "credentials", want: "arn:aws:iam::000000000000:user/key, by"},
		"a service that does not answer": {check: "credentials", want: "unseen: the service sts can't be reached from here",
			change: func(a *fakeaws.Account) { a.Silent = []string{"sts"} }},

		"a clock that is right": {check: "clock", want: "within 2s of AWS's"},
		"a clock behind": {check: "clock", want: "behind AWS's, and more than 2s (health.skew_budget): a worker here",
			remedy: "timedatectl", change: func(a *fakeaws.Account) { a.Ahead = 2 * time.Minute }},
		"a clock an hour ahead": {check: "clock", want: "ahead of AWS's, and more than 2s (health.skew_budget): AWS refuses",
			change: func(a *fakeaws.Account) { a.Ahead = -time.Hour }},

		"enough of all quotas": {pools: two, check: "gpu_quota", want: "small: 256 vCPUs of L-3819A6DF; list: 64 vCPUs"},
		"no quota at all": {check: "gpu_quota",
			want: `pool small: the quota "All G and VT Spot Instance Requests" (L-3819A6DF) has 0 vCPUs in us-east-1, and its ` +
				"smallest machine, g6.xlarge, needs 4",
			remedy: "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code L-3819A6DF " +
				"--desired-value 32 --region us-east-1",
			change: func(a *fakeaws.Account) { a.Quotas["L-3819A6DF"] = 0 }},
		"no quota at the list price": {pools: two, check: "gpu_quota", want: `pool list: the quota "Running On-Demand G`,
			remedy: "L-DB2E81BA --desired-value 32", change: func(a *fakeaws.Account) { a.Quotas["L-DB2E81BA"] = 3 }},
		"no quota for half of the machines": {pools: half, check: "gpu_quota", want: "(L-DB2E81BA) has 0 vCPUs",
			remedy: "L-DB2E81BA --desired-value 32", change: func(a *fakeaws.Account) { a.Quotas["L-DB2E81BA"] = 0 }},
		"room for some machines": {check: "gpu_quota", change: func(a *fakeaws.Account) { a.Quotas["L-3819A6DF"] = 8 },
			want: "small: 8 vCPUs of L-3819A6DF, room for 2 of 8 machines (for all: run aws service-quotas"},
		"two pools of one quota": {pools: one + "[[pool]]\nname = 'other'\nmodel = 'n'\n", check: "gpu_quota",
			remedy: "--desired-value 64", want: "pool small", change: func(a *fakeaws.Account) { a.Quotas["L-3819A6DF"] = 0 }},
		"a quota with room for one of two pools": {pools: one + "[[pool]]\nname = 'other'\nmodel = 'n'\n",
			check: "gpu_quota", want: "pool other: " +
				"the quota \"All G and VT Spot Instance Requests\" (L-3819A6DF) has 4 vCPUs in us-east-1, of " +
				"which other pools take at least 4, and its smallest machine, g6.xlarge, needs 4",
			remedy: "--desired-value 64", change: func(a *fakeaws.Account) { a.Quotas["L-3819A6DF"] = 4 }},
		"a quota that two pools share": {pools: one + "[[pool]]\nname = 'other'\nmodel = 'n'\n", check: "gpu_quota",
			want:   "; other: 12 vCPUs of L-3819A6DF, of which other pools take at least 4, room for 2 of 8 machines",
			change: func(a *fakeaws.Account) { a.Quotas["L-3819A6DF"] = 12 }},
		"a quota that can't be seen, before one without room": {pools: one + "[[pool]]\nname = 'list'\nmodel = 'n'\n" +
			"provisioning = 'standard'\n", check: "gpu_quota", want: "pool list: the quota",
			change: func(a *fakeaws.Account) { delete(a.Quotas, "L-3819A6DF"); a.Quotas["L-DB2E81BA"] = 0 }},
		"a quota that can't be seen, beside one without room": {pools: big, check: "gpu_quota", want: "unseen: Service",
			change: func(a *fakeaws.Account) { delete(a.Quotas, "L-C4BD4855"); a.Quotas["L-7212CCBC"] = 0 }},
		"no quota of large machines": {pools: big, check: "gpu_quota", want: `"All P4, P3 and P2 Spot Instance Requests"`,
			remedy: "L-7212CCBC --desired-value 768"},
		"a quota of one of two kinds": {pools: big, check: "gpu_quota", want: "big: 192 vCPUs of L-C4BD4855, room for 1 of 8",
			change: func(a *fakeaws.Account) { a.Quotas["L-C4BD4855"] = 192 }},
		"a quota that is not known here": {pools: next, check: "gpu_quota", want: "the quotas of some instance types"},
		"a region without that quota": {pools: big, check: "gpu_quota",
			want: `unseen: Service Quotas knows no "All P`, change: func(a *fakeaws.Account) { a.Quotas = nil }},
		"no answer about quotas": {check: "gpu_quota", want: "unseen: the service servicequotas can't be reached from here",
			change: func(a *fakeaws.Account) { a.Silent = []string{"servicequotas"} }},

		"types by zone": {check: "machine_types",
			want: "g6.xlarge, g6.2xlarge, g6.4xlarge, g6.8xlarge, gr6.4xlarge, g5.xlarge, g5.2xlarge, g5.4xlarge, " +
				"g5.8xlarge, g6e.xlarge in a, b"},
		"a type in no zone": {check: "machine_types", want: "g6e.xlarge in no zone of us-east-1",
			change: func(a *fakeaws.Account) { delete(a.Zones, "g6e.xlarge") }},
		"a type in a local zone": {pools: half, check: "machine_types", want: "no zone of us-east-1 offers machines g6",
			change: func(a *fakeaws.Account) { a.Zones["g6.2xlarge"] = []string{"us-east-1-bos-1a"} }},
		"a pool without any machine": {pools: one + big, check: "machine_types",
			want:   "pool big: no zone of us-east-1 offers machines p5.48xlarge, p4d.24xlarge",
			remedy: "instance_types", change: func(a *fakeaws.Account) {
				delete(a.Zones, "p5.48xlarge")
				delete(a.Zones, "p4d.24xlarge")
			}},

		"the usual image": {check: "machine_image", want: "ami-0123456789abcdef0"},
		"no image in the region": {check: "machine_image", want: "the region us-east-1 has no machine image /aws/serv",
			remedy: "ami of [[pool]]", change: func(a *fakeaws.Account) { a.Parameters = nil }},
		"an image of one's own": {pools: own, check: "machine_image", want: "ami-0aaaaaaaaaaaaaaaa",
			change: func(a *fakeaws.Account) { a.Images = []string{"ami-0aaaaaaaaaaaaaaaa"} }},
		"an image of another region": {pools: own, check: "machine_image", want: "has no machine image ami-0aaaa"},
		"an image that is not ready": {pools: own, check: "machine_image", remedy: "wait until it is",
			want: `the machine image ami-0aaaaaaaaaaaaaaaa is not available: it is "pending"`,
			change: func(a *fakeaws.Account) {
				a.Images, a.ImageState = []string{"ami-0aaaaaaaaaaaaaaaa"}, "pending"
			}},
		"an image that can't be seen, before one that is absent": {check: "machine_image",
			pools:  one + "[[pool]]\nname = 'own'\nmodel = 'n'\nami = 'ami-0aaaaaaaaaaaaaaaa'\n",
			want:   "has no machine image ami-0aaaa",
			change: func(a *fakeaws.Account) { a.Silent = []string{"ssm"} }},
		"a parameter with something else": {pools: mine, check: "machine_image", remedy: "set it to an id",
			want:   `the parameter /acme/gpu has no id of a machine image: "hello"`,
			change: func(a *fakeaws.Account) { a.Parameters["/acme/gpu"] = "hello" }},

		"groups that launch": {pools: two, check: "launches", want: "2 groups"},
		"a suspended group": {check: "launches", want: "the group rollout-small launches no machine: User suspended",
			remedy: "aws autoscaling resume-processes --auto-scaling-group-name rollout-small --scaling-processes Launch " +
				"--region us-east-1",
			groups: func(g *fakeaws.Groups) { makeGroup(g, "small"); g.SuspendLaunch("rollout-small", "User suspended") }},
		"a group that Auto Scaling suspended": {check: "launches", want: "1 group; Auto Scaling has suspended rollout-" +
			"small (administrative suspension): it launches again with the next work",
			groups: func(g *fakeaws.Groups) {
				makeGroup(g, "small")
				g.SuspendLaunch("rollout-small", "administrative suspension")
			}},
		"a pool that was not deployed": {pools: two, check: "launches", want: "the pool list has no group rollout-list",
			remedy: "deploy the stack again", groups: func(g *fakeaws.Groups) { makeGroup(g, "small") }},
		"a stack without machines": {check: "launches", want: "unseen: there is no group of machines",
			groups: func(*fakeaws.Groups) {}},

		"a bucket that invokes submit": {check: "notification", want: "uploads to prompts/ invoke rollout-submit"},
		"a bucket that says nothing": {check: "notification",
			want:   "the bucket acme tells the function rollout-submit of no uploads to prompts/",
			remedy: "EventBridgeConfiguration", change: func(a *fakeaws.Account) { a.Notifications = nil }},
		"a bucket that invokes another": {check: "notification", want: "of no uploads",
			change: func(a *fakeaws.Account) { a.Notifications[0].Function = "other-submit" }},
		"a bucket that tells of other objects": {check: "notification", want: "of no uploads",
			change: func(a *fakeaws.Account) { a.Notifications[0].Prefix = "other/" }},
		"a bucket that tells of some uploads": {check: "notification", want: "of no uploads",
			change: func(a *fakeaws.Account) { a.Notifications[0].Suffix = ".json" }},
		"a bucket that tells of deletions": {check: "notification", want: "of no uploads",
			change: func(a *fakeaws.Account) { a.Notifications[0].Event = "s3:ObjectRemoved:*" }},
		"EventBridge with a rule": {check: "notification", want: "uploads invoke rollout-submit by the rule Prompts",
			change: func(a *fakeaws.Account) {
				a.Notifications, a.EventBridge, a.Rules["rollout-submit"] = nil, true, []string{"Prompts"}
			}},
		"EventBridge without a rule": {check: "notification", want: "where no rule invokes rollout-submit",
			remedy: "-c bucket=existing", change: func(a *fakeaws.Account) { a.Notifications, a.EventBridge = nil, true }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := "schema_version = 1\n[cloud]\nprovider = 'aws'\nregion = 'us-east-1'\ns3.bucket = 'acme'\n" +
				cmp.Or(c.pools, one)
			d, err := config.ParseDeployment("rollout.toml", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			account := fakeaws.HealthyAccount(d)
			if c.change != nil {
				c.change(&account)
			}
			s := openAccount(t, d, fakeaws.Options{Config: text, Account: &account}, c.groups)
			if found := look(t, s, c.check); !strings.Contains(found, c.want) || !strings.Contains(found, c.remedy) {
				t.Errorf("the check %s says %q, want %q and %q", c.check, found, c.want, c.remedy)
			}
		})
	}
}

// makeGroup makes an empty group for a pool.
func makeGroup(g *fakeaws.Groups, pool string) {
	g.Make("rollout-"+pool, 8, func(*fakeaws.Instance) *exec.Cmd { return exec.Command("true") })
}

// openAccount opens the stack of a deployment in an account without an emulator behind it.
// groups makes the groups; nil makes those of the pools.
func openAccount(t *testing.T, d config.Deployment, o fakeaws.Options, groups func(*fakeaws.Groups)) *aws.Stack {
	t.Helper()
	nothing := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(nothing.Close)
	o.Backend = nothing.URL
	c, err := fakeaws.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if groups == nil {
		groups = func(g *fakeaws.Groups) {
			for _, p := range d.Pools {
				makeGroup(g, p.Name)
			}
		}
	}
	groups(c.Groups)
	s, err := aws.OpenStack(t.Context(), d, aws.StackOptions{
		Options: cloud.Options{UseServiceClock: true}, SDK: []func(*awsconfig.LoadOptions) error{
			awsconfig.WithBaseEndpoint(c.URL), awsconfig.WithSharedConfigFiles(nil), awsconfig.WithSharedCredentialsFiles(nil),
			awsconfig.WithRetryMaxAttempts(1),
			awsconfig.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("key", "none", ""))}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// look makes a check of the account and returns what it says.
func look(t *testing.T, s *aws.Stack, check string) string {
	t.Helper()
	before := s.Diagnostics(nil).Before
	i := slices.IndexFunc(before, func(p cloud.Probe) bool { return p.Name == check })
	if i > 0 { // whatever the first check says, it asks a service, as it does before any other
		_, _ = before[0].Run(t.Context())
	}
	found, err := before[i].Run(t.Context())
	var u *cloud.Unseen
	switch {
	case errors.As(err, &u):
		return "unseen: " + u.Reason
	case err != nil:
		return err.Error() + " remedy: " + fault.RemedyOf(err)
	}
	return found
}
