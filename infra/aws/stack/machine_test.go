package stack_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"rollout/infra/aws/stack"
	"rollout/shared/config"
	"rollout/shared/fault"
)

func TestPoolMayBuyItsMachinesAtTheListPrice(t *testing.T) {
	t.Parallel()
	made := synth(t, settings(t, func(s *stack.Settings) {
		s.Deployment.Pools[0].Provisioning = config.ProvisioningStandard
	}))
	for pool, want := range map[string]float64{"small": 100, "large": 0} {
		g := made.physical(t, "AWS::AutoScaling::AutoScalingGroup", "AutoScalingGroupName", "acme-"+pool).Properties
		d := tree(g.at("MixedInstancesPolicy.InstancesDistribution").(map[string]any))
		if got := d.number("OnDemandPercentageAboveBaseCapacity"); got != want {
			t.Errorf("%s buys %v %% of its machines at the list price, want %v", pool, got, want)
		}
	}
}

// described is a pool with every key that describes its machines.
const described = `
[[pool]]
name = "whole"
model = "s3://acme-models/llama/70b/"
instance_types = ["g6e.12xlarge", "g6e.24xlarge"]
tensor_parallel = 4
engine_args = ["--max-model-len", "32768", "$(touch /tmp/x)"]
disk_gb = 300
disk_throughput = 1000
boot_deadline = "40m"
max_price = 4.5
on_demand_base = 1
on_demand_share = 0.25
ami = "ami-0123456789abcdef0"
tags = { team = "ml research" }
[[pool]]
name = "network-disk"
model = "org/other"
instance_types = ["g6.xlarge", "g7x.xlarge"]
ami = "/acme/gpu/ami-id"
`

func TestGroupIsAsItsPoolDescribesIt(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("testdata/rollout.toml")
	if err != nil {
		t.Fatal(err)
	}
	made := synth(t, read(t, string(src)+described))
	group := func(pool string) tree {
		return made.physical(t, "AWS::AutoScaling::AutoScalingGroup", "AutoScalingGroupName", "acme-"+pool).Properties
	}
	launch := func(pool string) tree {
		l := made.physical(t, "AWS::EC2::LaunchTemplate", "LaunchTemplateName", "acme-"+pool)
		return l.Properties.at("LaunchTemplateData").(map[string]any)
	}
	d := tree(group("whole").at("MixedInstancesPolicy.InstancesDistribution").(map[string]any))
	if d.text("SpotMaxPrice") != "4.5" || d.number("OnDemandBaseCapacity") != 1 ||
		d.number("OnDemandPercentageAboveBaseCapacity") != 25 {
		t.Errorf("machines are bought as %v", d)
	}
	var types []string
	for _, o := range group("whole").list("MixedInstancesPolicy.LaunchTemplate.Overrides") {
		types = append(types, tree(o.(map[string]any)).text("InstanceType"))
	}
	if !slices.Equal(types, []string{"g6e.12xlarge", "g6e.24xlarge"}) {
		t.Errorf("the types are %q", types)
	}
	for pool, want := range map[string][4]string{
		"whole":        {"300", "1000", "4000", "ami-0123456789abcdef0"},
		"network-disk": {"150", "500", "", "resolve:ssm:/acme/gpu/ami-id"},
		"small": {"150", "125", "", "resolve:ssm:/aws/service/deeplearning/ami/x86_64/" +
			"base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"},
	} {
		disk := tree(launch(pool).list("BlockDeviceMappings")[0].(map[string]any))
		got := [4]string{disk.text("Ebs.VolumeSize"), disk.text("Ebs.Throughput"), disk.text("Ebs.Iops"),
			launch(pool).text("ImageId")}
		if got != want {
			t.Errorf("%s: size, throughput, IOPS and image are %q, want %q", pool, got, want)
		}
	}
	tagged := 0
	for _, x := range launch("whole").list("TagSpecifications") {
		for _, tag := range tree(x.(map[string]any)).list("Tags") {
			if tag := tree(tag.(map[string]any)); tag.text("Key") == "team" && tag.text("Value") == "ml research" {
				tagged++
			}
		}
	}
	if tagged < 2 {
		t.Errorf("machines and volumes have the tags %v", launch("whole").at("TagSpecifications"))
	}
	for pool, want := range map[string]string{"whole": "2400", "small": "1200"} {
		script := flat(launch(pool).at("UserData").(map[string]any)["Fn::Base64"])
		if !strings.Contains(script, "export ROLLOUT_READY_WITHIN='"+want+"'\n") {
			t.Errorf("the servers of %s may not take %s s", pool, want)
		}
	}
}

// EC2 recommends to leave machines that mostly stay: only a pool that wants it hears of it.
func TestOnlyAPoolThatWantsItIsRebalanced(t *testing.T) {
	t.Parallel()
	made := synth(t, settings(t, func(s *stack.Settings) { s.Deployment.Pools[0].DrainOnRebalance = true }))
	training := synth(t, settings(t, func(s *stack.Settings) {
		for i := range s.Deployment.Pools {
			s.Deployment.Pools[i].DrainOnRebalance = s.Deployment.Pools[i].Trains()
		}
	}))
	for pool, want := range map[string]bool{"small": true, "large": false} {
		g := made.physical(t, "AWS::AutoScaling::AutoScalingGroup", "AutoScalingGroupName", "acme-"+pool).Properties
		if g.at("CapacityRebalance") != want {
			t.Errorf("%s rebalances capacity: %v, want %v", pool, g.at("CapacityRebalance"), want)
		}
	}
	for name, c := range map[string]struct {
		of   template
		want bool
	}{"by default": {asUsual(t), false}, "for one pool": {made, true}, "for one that trains": {training, true}} {
		heard := false
		for _, r := range c.of.all("AWS::Events::Rule") {
			heard = heard || strings.Contains(flat(r.Properties.at("EventPattern")), "Rebalance Recommendation")
		}
		if heard != c.want {
			t.Errorf("%s: recommendations are heard: %v, want %v", name, heard, c.want)
		}
	}
}

// opensSessions reports whether the action belongs to sessions. Who reads a parameter opens none.
func opensSessions(action string) bool {
	return strings.HasPrefix(action, "ssm") && action != "ssm:GetParameter"
}

// Sessions are a door into the machines: only people who want it get it.
func TestMachinesKeepLogsForAWeekAndOpenSessionsOnlyIfAskedFor(t *testing.T) {
	t.Parallel()
	open := synth(t, settings(t, func(s *stack.Settings) { s.Sessions = true }))
	for name, c := range map[string]struct {
		of   template
		want int // roles of machines that allow sessions
	}{"by default": {asUsual(t), 0}, "with sessions": {open, 3}} {
		if got := c.of.physical(t, "AWS::Logs::LogGroup", "LogGroupName", "/rollout/acme/machines").Properties.number(
			"RetentionInDays"); got != 7 {
			t.Errorf("%s: logs are kept for %v days, want 7", name, got)
		}
		sessions, writers := 0, 0
		for _, s := range c.of.policies() {
			machine := strings.HasPrefix(s.of.id, "MachineRole")
			if slices.ContainsFunc(s.actions, opensSessions) {
				sessions++
				if !machine || !s.allow {
					t.Errorf("%s: %s allows sessions", name, s.of.id)
				}
			}
			if machine && slices.Contains(s.actions, "logs:PutLogEvents") {
				writers++
				if len(s.resources) != 1 || !strings.Contains(s.resources[0], "log-group:/rollout/acme/machines:log-stream:*") {
					t.Errorf("%s: %s may write to %q", name, s.of.id, s.resources)
				}
			}
		}
		if sessions != c.want || writers != 3 {
			t.Errorf("%s: %d roles allow sessions, want %d, and %d write logs, want 3", name, sessions, c.want, writers)
		}
	}
}

// A machine may read the pool's own model, and no other object of that bucket.
func TestMachineMayReadItsModelsBucket(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("testdata/rollout.toml")
	if err != nil {
		t.Fatal(err)
	}
	made := synth(t, read(t, string(src)+described))
	var readers, objects, listed []string
	for _, s := range made.policies() {
		for _, r := range s.resources {
			if !strings.Contains(r, "acme-models") {
				continue
			}
			readers = append(readers, s.of.id)
			if slices.Equal(s.actions, []string{"s3:GetObject"}) {
				objects = append(objects, r[strings.LastIndex(r, ":")+1:])
			} else {
				listed = append(listed, strings.Join(s.actions, " ")+" "+strings.Join(texts(s.condition.at(
					"StringLike.s3:prefix")), " "))
			}
		}
	}
	slices.Sort(objects)
	if got := slices.Compact(readers); len(got) != 1 || !strings.Contains(got[0], "whole") ||
		!slices.Equal(objects, []string{"acme-models/llama/70b", "acme-models/llama/70b/*"}) ||
		!slices.Equal(listed, []string{"s3:ListBucket llama/70b llama/70b/*"}) {
		t.Errorf("%q may read %q and list %q", readers, objects, listed)
	}
}

func TestMachinesAreLookedForInEveryZone(t *testing.T) {
	t.Parallel()
	made := synth(t, settings(t, func(s *stack.Settings) { s.Zones, s.Deployment.Cloud.Region = 0, "us-east-1" }))
	if got := len(made.all("AWS::EC2::Subnet")); got != 6 {
		t.Errorf("the network has %d subnets in us-east-1, want 6", got)
	}
}

func TestFleetsAreEmptySpotGroupsWithoutWork(t *testing.T) {
	t.Parallel()
	made := asUsual(t)
	for _, pool := range []string{"small", "large"} {
		g := made.physical(t, "AWS::AutoScaling::AutoScalingGroup", "AutoScalingGroupName", "acme-"+pool).Properties
		if g.text("MinSize") != "0" || g.text("MaxSize") != "3" || g.at("DesiredCapacity") != nil {
			t.Errorf("%s: min size %s, max size %s, desired capacity %v, want 0, 3 and none",
				pool, g.text("MinSize"), g.text("MaxSize"), g.at("DesiredCapacity"))
		}
		if g.at("CapacityRebalance") != false || g.at("NewInstancesProtectedFromScaleIn") != true {
			t.Errorf("%s rebalances capacity, or does not protect machines from scale-in: %v", pool, g)
		}
		d := tree(g.at("MixedInstancesPolicy.InstancesDistribution").(map[string]any))
		if d.number("OnDemandBaseCapacity") != 0 || d.number("OnDemandPercentageAboveBaseCapacity") != 0 ||
			d.text("SpotAllocationStrategy") != "price-capacity-optimized" {
			t.Errorf("%s is not a spot group: %v", pool, d)
		}
		var types []string
		for _, o := range g.list("MixedInstancesPolicy.LaunchTemplate.Overrides") {
			types = append(types, tree(o.(map[string]any)).text("InstanceType"))
		}
		if !slices.Equal(types, config.DefaultFleet().InstanceTypes) {
			t.Errorf("%s has the instance types %v", pool, types)
		}
	}
	for _, kind := range []string{
		"AWS::AutoScaling::ScalingPolicy",
		"AWS::AutoScaling::ScheduledAction",
		"AWS::EC2::NatGateway",
		"AWS::EC2::EIP",
	} {
		if found := made.all(kind); len(found) > 0 {
			t.Errorf("the template has a %s", kind)
		}
	}
	services := ""
	for _, e := range made.all("AWS::EC2::VPCEndpoint") {
		services += e.Properties.text("ServiceName") + " "
	}
	if !strings.Contains(services, ".s3") || !strings.Contains(services, ".dynamodb") {
		t.Errorf("the network has gateway endpoints for %s, want S3 and DynamoDB", services)
	}
}

func TestMachinesAcceptNoConnectionsAndHaveEncryptedDisks(t *testing.T) {
	t.Parallel()
	made := asUsual(t)
	for _, l := range made.all("AWS::EC2::LaunchTemplate") {
		d := tree(l.Properties.at("LaunchTemplateData").(map[string]any))
		if d.text("MetadataOptions.HttpTokens") != "required" ||
			d.number("MetadataOptions.HttpPutResponseHopLimit") != 1 {
			t.Errorf("%s lets containers reach the metadata service: %v", l.id, d.at("MetadataOptions"))
		}
		disk := tree(d.list("BlockDeviceMappings")[0].(map[string]any))
		if disk.at("Ebs.Encrypted") != true || disk.text("Ebs.VolumeType") != "gp3" ||
			disk.at("Ebs.DeleteOnTermination") != true {
			t.Errorf("%s has the disk %v", l.id, disk)
		}
		if d.at("KeyName") != nil {
			t.Errorf("%s has an SSH key", l.id)
		}
	}
	group := made.one(t, "AWS::EC2::SecurityGroup").Properties
	for _, e := range group.list("SecurityGroupEgress") {
		if out := tree(e.(map[string]any)); out.number("FromPort") != 443 || out.number("ToPort") != 443 {
			t.Errorf("machines may connect to %v, want only port 443", out)
		}
	}
}

// A worker processes untrusted prompts. It may read prompts and work, create
// objects below work, pending and cas without overwriting any, and receive only
// from its pool's queues.
func TestMachineRoleIsMinimal(t *testing.T) {
	t.Parallel()
	made := synth(t, settings(t, func(s *stack.Settings) {
		s.Deployment.Secrets = []string{"hf-token", "api-token"}
	}))
	allowed, written := machineMay(t, made, "acme-small")
	if !slices.Equal(written, []string{"beat/", "shard-??", "limit/"}) {
		t.Errorf("a worker may write documents in %v", written)
	}
	for action, want := range map[string][]string{
		"s3:PutObject":                  {"cas/*", "models/*", "pending/*", "work/*"},
		"s3:DeleteObject":               {"pending/clock-*"},
		"dynamodb:PutItem":              {"acme"},
		"dynamodb:DeleteItem":           nil,
		"dynamodb:Query":                {"acme"},
		"sqs:ReceiveMessage":            {"acme-urgent-small", "acme-work-small"},
		"sqs:SendMessage":               {"acme-coordinate", "acme-urgent-small-dead", "acme-work-small-dead"},
		"secretsmanager:GetSecretValue": {"hf-token-??????"},
		"lambda:InvokeFunction":         nil,
		"autoscaling:TerminateInstanceInAutoScalingGroup": {"acme-small"},
		"autoscaling:SetDesiredCapacity":                  nil,
	} {
		if got := allowed[action]; !slices.Equal(got, want) {
			t.Errorf("a worker may %s on %v, want %v", action, got, want)
		}
	}
}

// machineMay returns what the machines of a group may do, by action, and the partitions in
// which they may write documents. Machines never overwrite objects.
func machineMay(t *testing.T, made template, group string) (allowed map[string][]string, written []string) {
	t.Helper()
	launch := made.physical(t, "AWS::EC2::LaunchTemplate", "LaunchTemplateName", group)
	profile := strings.Trim(launch.Properties.text("LaunchTemplateData.IamInstanceProfile.Arn"), "<>")
	profile = strings.TrimSuffix(profile, ".Arn")
	role := strings.Trim(texts(made.Resources[profile].Properties.at("Roles"))[0], "<>")
	allowed = map[string][]string{}
	forbidden := false
	for _, s := range made.policyOf(role) {
		if !s.allow {
			forbidden = forbidden || slices.Contains(s.actions, "s3:PutObject") &&
				s.condition.text("Null.s3:if-none-match") == "true" &&
				s.condition.text("Bool.s3:ObjectCreationOperation") == "true" &&
				slices.ContainsFunc(s.resources, func(r string) bool {
					return strings.HasSuffix(r, ":acme-batches/team-a/*")
				})
			continue
		}
		for _, a := range s.actions {
			for _, r := range s.resources {
				_, last, _ := strings.Cut(r, "acme-batches/team-a/")
				if last == "" {
					last = r[strings.LastIndexAny(r, ":/")+1:]
				}
				allowed[a] = append(allowed[a], last)
			}
		}
		if slices.Contains(s.actions, "dynamodb:PutItem") {
			written = append(written, s.partitions()...)
		}
	}
	if !forbidden {
		t.Errorf("%s: a worker may overwrite objects", group)
	}
	for _, resources := range allowed {
		slices.Sort(resources)
	}
	return allowed, written
}

// A training keeps snapshots, and removes those that newer ones replace. It asks no server.
func TestRoleOfTrainingMachinesIsMinimal(t *testing.T) {
	t.Parallel()
	allowed, written := machineMay(t, asUsual(t), "acme-trainers")
	if !slices.Equal(written, []string{"beat/", "shard-??", "snapshot/", "content/"}) {
		t.Errorf("a training may write documents in %v", written)
	}
	for action, want := range map[string][]string{
		"s3:GetObject":                  {"cas/*", "pending/*", "prompts/*", "work/*"},
		"s3:PutObject":                  {"cas/*", "pending/*", "work/*"},
		"s3:DeleteObject":               {"cas/*", "pending/*"},
		"s3:DeleteObjectVersion":        nil,
		"dynamodb:DeleteItem":           {"acme"},
		"dynamodb:Query":                {"acme"},
		"sqs:ReceiveMessage":            {"acme-urgent-trainers", "acme-work-trainers"},
		"sqs:SendMessage":               {"acme-coordinate", "acme-urgent-trainers-dead", "acme-work-trainers-dead"},
		"secretsmanager:GetSecretValue": nil,
		"autoscaling:TerminateInstanceInAutoScalingGroup": {"acme-trainers"},
	} {
		got := slices.DeleteFunc(slices.Clone(allowed[action]), func(r string) bool {
			return action == "s3:GetObject" && !strings.HasSuffix(r, "/*") // the worker program
		})
		if !slices.Equal(got, want) {
			t.Errorf("a training may %s on %v, want %v", action, got, want)
		}
	}
}

// Without a training pool people have no rights to snapshots.
func TestRightsToSnapshotsComeWithATrainingPool(t *testing.T) {
	t.Parallel()
	made := synth(t, settings(t, func(s *stack.Settings) { s.Deployment.Pools = s.Deployment.InferPools() }))
	for _, name := range []string{"reader", "user"} {
		for _, s := range made.policyOf(made.policy(t, name).id) {
			for _, r := range slices.Concat(s.resources, s.partitions()) {
				if strings.Contains(r, "cas/") || strings.Contains(r, "snapshot/") || strings.Contains(r, "content/") {
					t.Errorf("a %s may %v on %s", name, s.actions, r)
				}
			}
		}
	}
}

// Machines of a training pool have processors alone, and an image without a driver.
func TestTrainingMachinesHaveNoGPUs(t *testing.T) {
	t.Parallel()
	made := asUsual(t)
	launch := tree(made.physical(t, "AWS::EC2::LaunchTemplate", "LaunchTemplateName", "acme-trainers").
		Properties.at("LaunchTemplateData").(map[string]any))
	disk := tree(launch.list("BlockDeviceMappings")[0].(map[string]any))
	got := [4]string{launch.text("ImageId"), disk.text("DeviceName"), disk.text("Ebs.VolumeSize"),
		disk.text("Ebs.Throughput")}
	want := [4]string{"resolve:ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64", "/dev/xvda",
		"30", "125"}
	if got != want {
		t.Errorf("image, device, size and throughput are %q, want %q", got, want)
	}
	group := made.physical(t, "AWS::AutoScaling::AutoScalingGroup", "AutoScalingGroupName", "acme-trainers").Properties
	for _, o := range group.list("MixedInstancesPolicy.LaunchTemplate.Overrides") {
		if name := tree(o.(map[string]any)).text("InstanceType"); !strings.HasPrefix(name, "c") &&
			!strings.HasPrefix(name, "m") {
			t.Errorf("the group may start %s", name)
		}
	}
	script := flat(launch.at("UserData").(map[string]any)["Fn::Base64"])
	if !strings.Contains(script, "export ROLLOUT_MODEL='rollout/tiny'\n") ||
		!strings.Contains(script, "export ROLLOUT_POOL='trainers'\n") {
		t.Errorf("the script begins with %.900s", script)
	}
}

// A machine that fails early can't report it. Its group does: interrupt gets the
// events of the pools' groups, and may write what becomes of their machines.
func TestInterruptGetsEventsOfFleets(t *testing.T) {
	t.Parallel()
	made := asUsual(t)
	function := made.physical(t, "AWS::Lambda::Function", "FunctionName", "acme-interrupt")
	rules := 0
	for _, r := range made.all("AWS::Events::Rule") {
		if r.Properties.text("EventPattern.source") != `["aws.autoscaling"]` {
			continue
		}
		rules++
		kinds := []string{"EC2 Instance Terminate Successful", "EC2 Instance Launch Unsuccessful"}
		if got := texts(r.Properties.at("EventPattern.detail-type")); !slices.Equal(got, kinds) {
			t.Errorf("the rule matches events of %q, want %q", got, kinds)
		}
		const groups = `{"AutoScalingGroupName":[{"prefix":"acme-"}]}`
		if got := r.Properties.text("EventPattern.detail"); got != groups {
			t.Errorf("the rule matches %s, want %s", got, groups)
		}
		if to := tree(r.Properties.list("Targets")[0].(map[string]any)).text("Arn"); to != "<"+function.id+".Arn>" {
			t.Errorf("the rule invokes %s, want interrupt", to)
		}
	}
	if rules != 1 {
		t.Errorf("%d rules match events of groups, want 1", rules)
	}
	for _, s := range made.role(t, "interrupt") {
		for _, action := range s.actions {
			switch action {
			case "dynamodb:PutItem":
				if got := s.partitions(); !slices.Equal(got, []string{"beat/", "worker/", "fleet/"}) {
					t.Errorf("interrupt may write documents in %v", got)
				}
			case "autoscaling:DescribeAutoScalingInstances",
				"dynamodb:GetItem",
				"dynamodb:BatchGetItem",
				"dynamodb:Query",
				"sqs:SendMessage",
				"sqs:GetQueueUrl",
				"logs:CreateLogStream",
				"logs:PutLogEvents":
			default:
				t.Errorf("interrupt may do %s", action)
			}
		}
	}
}

// The user data begins with the machine's settings, quoted for the shell. With the longest
// config, and the longest names that a pool may have, it fits into the 16 KiB that EC2 accepts,
// unless the config has hundreds of apostrophes, each of which takes 4 bytes.
func TestUserDataHasConfigAndFitsEC2Limit(t *testing.T) {
	t.Parallel()
	made := asUsual(t)
	for _, l := range made.all("AWS::EC2::LaunchTemplate") {
		raw := l.Properties.at("LaunchTemplateData.UserData").(map[string]any)
		script := flat(raw["Fn::Base64"])
		quoted := strings.ReplaceAll(settings(t).Config, "'", `'\''`)
		const names = 1 << 10 // of pool, model and installation, beside those of the test
		if size := len(script) - len(quoted) + (3 << 10); !strings.Contains(script, quoted) || size+names > 16<<10 {
			t.Errorf("%s: the user data may have %d bytes, and 1 KiB of names: more than 16 KiB", l.id, size)
		}
		if strings.Contains(script, "\n# ") || !strings.Contains(script, "\nset -euo pipefail\n") ||
			!strings.Contains(script, "\n#!/usr/bin/env bash\n") {
			t.Errorf("%s: the user data has comments, or lacks what is no comment: %s", l.id, script)
		}
		check := exec.CommandContext(t.Context(), "bash", "-n")
		check.Stdin = strings.NewReader(script)
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", l.id, err, out)
		}
		for _, part := range []string{
			"ROLLOUT_CONFIG='",
			"ROLLOUT_MODEL='",
			"ROLLOUT_WORKER='s3://",
			"AWS_REGION='eu-central-1'",
		} {
			if !strings.Contains(script, part) {
				t.Errorf("%s: the user data does not contain %s", l.id, part)
			}
		}
	}
}

func TestUserDataThatEC2RefusesIsRefusedBefore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config  string
		refused bool
	}{
		"the longest config":    {strings.Repeat("#", 3<<10), false},
		"as long, to be quoted": {strings.Repeat("'", 3<<10), true},
	} {
		s := settings(t, func(s *stack.Settings) { s.Config = c.config })
		synthesis.Lock()
		_, err := stack.New(app(t), s)
		synthesis.Unlock()
		if fault.Is(err, fault.Invalid) != c.refused || err != nil && !strings.Contains(err.Error(), "EC2 takes 16384") {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}

func TestStackWithoutMachinesHasNoNetwork(t *testing.T) {
	t.Parallel()
	made := synth(t, settings(t, func(s *stack.Settings) { s.Machines, s.WorkerBinary = false, "" }))
	for id, r := range made.Resources {
		if strings.HasPrefix(r.Type, "AWS::EC2::") || strings.HasPrefix(r.Type, "AWS::AutoScaling::") {
			t.Errorf("%s is a %s", id, r.Type)
		}
	}
	for _, s := range made.policies() {
		for _, a := range s.actions {
			if strings.HasPrefix(a, "autoscaling:") {
				t.Errorf("%s allows %s without machines", s.of.id, a)
			}
		}
	}
}
