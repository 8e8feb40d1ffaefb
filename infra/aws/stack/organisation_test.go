package stack_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"rollout/infra/aws/stack"
	"rollout/shared/fault"
)

// Keys of one's own, of different parts.
const (
	anyKey     = "arn:aws:kms:eu-central-1:123456789012:key/"
	bucketKey  = anyKey + "00000000-0000-0000-0000-00000000000a"
	queuesKey  = anyKey + "00000000-0000-0000-0000-00000000000b"
	tableKey   = anyKey + "00000000-0000-0000-0000-00000000000c"
	disksKey   = anyKey + "00000000-0000-0000-0000-00000000000d"
	modelsKey  = anyKey + "00000000-0000-0000-0000-00000000000e"
	secretsKey = anyKey + "00000000-0000-0000-0000-00000000000f"
	privateECR = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/vllm:v1"
)

// withKeys sets the keys of all parts.
func withKeys(s *stack.Settings) {
	s.Keys = stack.Keys{
		Bucket: bucketKey, Queues: queuesKey, Table: tableKey, Disks: disksKey, Secrets: secretsKey,
		Read: []string{modelsKey},
	}
}

func TestPartsAreEncryptedWithTheirKeys(t *testing.T) {
	t.Parallel()
	made := synth(t, settings(t, withKeys))
	rule := tree(made.one(t, "AWS::S3::Bucket").Properties.list(
		"BucketEncryption.ServerSideEncryptionConfiguration")[0].(map[string]any))
	if rule.text("ServerSideEncryptionByDefault.KMSMasterKeyID") != bucketKey || rule.at("BucketKeyEnabled") != true {
		t.Errorf("the bucket is encrypted as %v", rule)
	}
	for _, q := range made.all("AWS::SQS::Queue") {
		if got := q.Properties.text("KmsMasterKeyId"); got != queuesKey {
			t.Errorf("%s is encrypted with %q", q.id, got)
		}
	}
	if got := made.one(t, "AWS::DynamoDB::Table").Properties.text("SSESpecification.KMSMasterKeyId"); got != tableKey {
		t.Errorf("the table is encrypted with %q", got)
	}
	for _, l := range made.all("AWS::EC2::LaunchTemplate") {
		data := tree(l.Properties.at("LaunchTemplateData").(map[string]any))
		disk := tree(data.list("BlockDeviceMappings")[0].(map[string]any))
		if got := disk.text("Ebs.KmsKeyId"); got != disksKey {
			t.Errorf("%s has a disk that is encrypted with %q", l.id, got)
		}
	}
}

// Each role may use the keys of what it reads and writes, and no other, and only through
// the service. No role may use the key of the disks: Auto Scaling uses that.
func TestRolesMayUseTheKeysOfWhatTheyUse(t *testing.T) {
	t.Parallel()
	made := synth(t, settings(t, withKeys))
	parts := map[string]string{
		bucketKey: "bucket", queuesKey: "queues", tableKey: "table", modelsKey: "models", secretsKey: "secrets",
	}
	services := map[string]string{
		"bucket": "s3", "queues": "sqs", "table": "dynamodb", "models": "s3", "secrets": "secretsmanager",
	}
	rights := func(statements []statement) (got []string) {
		for _, s := range statements {
			for _, r := range s.resources {
				if !strings.Contains(r, ":kms:") {
					continue
				}
				via := s.condition.text("StringLike.kms:ViaService")
				if via != services[parts[r]]+".eu-central-1.amazonaws.com*" {
					t.Errorf("%s: the key of %q is used through %q", s.of.id, parts[r], via)
				}
				how := "read"
				if slices.Contains(s.actions, "kms:GenerateDataKey") {
					how = "write"
				}
				got = append(got, how+" "+parts[r])
				if slices.Contains(s.actions, "kms:Decrypt") != true {
					t.Errorf("%s can't decrypt with the key of %q", s.of.id, parts[r])
				}
			}
		}
		slices.Sort(got)
		return got
	}
	for function, want := range map[string][]string{
		"submit":     {"write bucket", "write queues", "write table"},
		"plan":       {"write bucket", "write queues", "write table"},
		"coordinate": {"write bucket", "write queues", "write table"},
		"finalize":   {"read table", "write bucket", "write queues"},
		"reclaim":    {"read bucket", "read secrets", "write queues", "write table"}, // the webhook's key
		"interrupt":  {"write queues", "write table"},
		"api":        {"write bucket", "write queues", "write table"},
	} {
		if got := rights(made.role(t, function)); !slices.Equal(got, want) {
			t.Errorf("%s may %q, want %q", function, got, want)
		}
	}
	for name, want := range map[string][]string{
		"reader": {"read bucket", "read queues", "read table"}, // dead letters
		"user":   {"write bucket", "write queues", "write table"},
	} {
		if got := rights(made.policyOf(made.policy(t, name).id)); !slices.Equal(got, want) {
			t.Errorf("a %s may %q, want %q", name, got, want)
		}
	}
	for _, r := range made.all("AWS::IAM::Role") {
		want := []string{"read models", "read secrets", "write bucket", "write queues", "write table"}
		if strings.HasPrefix(r.id, "MachineRoletrainers") { // a training gets no secrets
			want = []string{"read models", "write bucket", "write queues", "write table"}
		}
		if got := rights(made.policyOf(r.id)); strings.HasPrefix(r.id, "MachineRole") && !slices.Equal(got, want) {
			t.Errorf("%s may %q, want %q", r.id, got, want)
		}
	}
	for _, s := range asUsual(t).policies() {
		if slices.ContainsFunc(s.actions, func(a string) bool { return strings.HasPrefix(a, "kms:") }) {
			t.Errorf("without keys, %s may %v", s.of.id, s.actions)
		}
	}
}

// The existing bucket's own key is named, so that the roles may use it.
func TestKeyOfAnExistingBucketIsAllowed(t *testing.T) {
	t.Parallel()
	made := synth(t, settings(t, func(s *stack.Settings) {
		s.Bucket, s.Machines, s.Keys.Bucket = stack.Existing, false, bucketKey
	}))
	allows := func(s statement) bool { return slices.Contains(s.resources, bucketKey) }
	if !slices.ContainsFunc(made.role(t, "submit"), allows) {
		t.Error("submit may not use the key of the existing bucket")
	}
}

func TestRolesAreAsAnOrganisationDemands(t *testing.T) {
	t.Parallel()
	const boundary = "arn:aws:iam::123456789012:policy/org/boundary"
	for given, want := range map[string]string{
		boundary:       boundary,
		"org/boundary": "arn:<AWS::Partition>:iam::<AWS::AccountId>:policy/org/boundary",
	} {
		made := synth(t, settings(t, func(s *stack.Settings) {
			s.Identity = stack.Identity{Boundary: given, Path: "/acme/batch/", Prefix: "app-of-a-department-"}
			s.Deployment.Pools[1].Name = "with-a-name-of-32-characters-xxx"
		}))
		names := map[string]bool{}
		for _, r := range made.all("AWS::IAM::Role") {
			name := r.Properties.text("RoleName")
			if r.Properties.text("PermissionsBoundary") != want || r.Properties.text("Path") != "/acme/batch/" ||
				!strings.HasPrefix(name, "app-of-a-department-acme-") || len(name) > 64 || names[name] {
				t.Errorf("%s has the name %s, the path %s and the boundary %s", r.id, name, r.Properties.text("Path"),
					r.Properties.text("PermissionsBoundary"))
			}
			names[name] = true
		}
		for _, kind := range []string{"AWS::IAM::ManagedPolicy", "AWS::IAM::InstanceProfile"} {
			for _, r := range made.all(kind) {
				name := r.Properties.text("ManagedPolicyName") + r.Properties.text("InstanceProfileName")
				if r.Properties.text("Path") != "/acme/batch/" || !strings.HasPrefix(name, "app-of-a-department-acme-") {
					t.Errorf("%s has the name %q and the path %s", r.id, name, r.Properties.text("Path"))
				}
			}
		}
		if !names["app-of-a-department-acme-submit-eu-central-1"] {
			t.Errorf("the names of the roles are %v", names)
		}
	}
}

func TestImageOfAPrivateRegistryMayBeFetchedByItsPoolAlone(t *testing.T) {
	t.Parallel()
	made := synth(t, settings(t, func(s *stack.Settings) { s.Deployment.Pools[0].EngineImage = privateECR }))
	var got []string
	for _, s := range made.policies() {
		for _, a := range s.actions {
			if strings.HasPrefix(a, "ecr:") {
				got = append(got, fmt.Sprint(strings.Contains(s.of.id, "small"), " ", a, " ", s.resources))
			}
		}
	}
	slices.Sort(got)
	const repository = " [arn:<AWS::Partition>:ecr:eu-west-1:123456789012:repository/team/vllm]"
	want := []string{
		"true ecr:BatchCheckLayerAvailability" + repository, "true ecr:BatchGetImage" + repository,
		"true ecr:GetAuthorizationToken [*]", "true ecr:GetDownloadUrlForLayer" + repository,
	}
	if !slices.Equal(got, want) {
		t.Errorf("the rights are %q, want %q", got, want)
	}
}

// network sets the network.
func network(n stack.Network) func(*stack.Settings) {
	return func(s *stack.Settings) { s.Network = n }
}

const (
	aVPC     = "vpc-0123456789abcdef0"
	subnetA  = "subnet-0123456789abcdef0"
	subnetB  = "subnet-0123456789abcdef1"
	aWall    = "sg-0123456789abcdef0"
	aTable   = "rtb-0123456789abcdef0"
	endpoint = "AWS::EC2::VPCEndpoint"
)

func TestMachinesRunInAnExistingNetwork(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		network   stack.Network
		wall      string // of the machines, "" for one that is made
		endpoints []string
	}{
		"with a group":    {stack.Network{VPC: aVPC, Subnets: []string{subnetA, subnetB}, SecurityGroup: aWall}, aWall, nil},
		"without a group": {stack.Network{VPC: aVPC, Subnets: []string{subnetA, subnetB}}, "", nil},
		"with endpoints": {
			stack.Network{VPC: aVPC, Subnets: []string{subnetA, subnetB}, SecurityGroup: aWall, Endpoints: true,
				RouteTables: []string{aTable}},
			aWall,
			[]string{
				"Gateway dynamodb", "Gateway s3", "Interface autoscaling", "Interface logs", "Interface secretsmanager",
				"Interface sqs",
			},
		},
	} {
		made := synth(t, settings(t, network(c.network)))
		for _, kind := range []string{"AWS::EC2::VPC", "AWS::EC2::Subnet", "AWS::EC2::InternetGateway", "AWS::EC2::Route"} {
			if n := len(made.all(kind)); n > 0 {
				t.Errorf("%s: the template has %d of %s", name, n, kind)
			}
		}
		for _, g := range made.all("AWS::AutoScaling::AutoScalingGroup") {
			if got := texts(g.Properties.at("VPCZoneIdentifier")); !slices.Equal(got, []string{subnetA, subnetB}) {
				t.Errorf("%s: machines run in %q", name, got)
			}
		}
		for _, l := range made.all("AWS::EC2::LaunchTemplate") {
			walls := texts(l.Properties.at("LaunchTemplateData").(map[string]any)["SecurityGroupIds"])
			made := len(walls) == 1 && strings.HasPrefix(walls[0], "<Wall")
			if c.wall != "" && !slices.Equal(walls, []string{c.wall}) || c.wall == "" && !made {
				t.Errorf("%s: machines have the groups %q", name, walls)
			}
		}
		for _, g := range made.all("AWS::EC2::SecurityGroup") {
			if got := g.Properties.text("VpcId"); got != aVPC {
				t.Errorf("%s: %s is in %s", name, g.id, got)
			}
		}
		if got := endpointsOf(made); !slices.Equal(got, c.endpoints) {
			t.Errorf("%s: the endpoints are %q, want %q", name, got, c.endpoints)
		}
	}
}

// endpointsOf returns the type and the service of each endpoint.
func endpointsOf(made template) (all []string) {
	short := strings.NewReplacer("com.amazonaws.", "", "eu-central-1.", "", "<AWS::Region>.", "")
	for _, e := range made.all(endpoint) {
		service := short.Replace(e.Properties.text("ServiceName"))
		all = append(all, e.Properties.text("VpcEndpointType")+" "+service)
	}
	slices.Sort(all)
	return all
}

func TestMachinesRunInPrivateSubnetsIfAsked(t *testing.T) {
	t.Parallel()
	nat := synth(t, settings(t, network(stack.Network{Kind: stack.NAT})))
	if n := len(nat.all("AWS::EC2::NatGateway")); n != 1 {
		t.Errorf("the template has %d NAT gateways, want 1", n)
	}
	isolated := synth(t, settings(t, network(stack.Network{Kind: stack.Isolated}), func(s *stack.Settings) {
		s.Deployment.Pools[0].EngineImage, s.Deployment.Pools[0].Model = privateECR, "s3://acme-models/x"
	}))
	for _, kind := range []string{"AWS::EC2::NatGateway", "AWS::EC2::InternetGateway"} {
		if n := len(isolated.all(kind)); n > 0 {
			t.Errorf("the isolated network has %d of %s", n, kind)
		}
	}
	want := []string{
		"Gateway dynamodb", "Gateway s3", "Interface autoscaling", "Interface ecr.api", "Interface ecr.dkr",
		"Interface logs", "Interface secretsmanager", "Interface sqs",
	}
	if got := endpointsOf(isolated); !slices.Equal(got, want) {
		t.Errorf("the endpoints are %q, want %q", got, want)
	}
	for _, made := range []template{nat, isolated} {
		for _, g := range made.all("AWS::AutoScaling::AutoScalingGroup") {
			for _, subnet := range texts(g.Properties.at("VPCZoneIdentifier")) {
				id := strings.Trim(subnet, "<>")
				if made.Resources[id].Properties.at("MapPublicIpOnLaunch") != false || !strings.Contains(id, "Machines") {
					t.Errorf("machines run in %s, which gives them public addresses", id)
				}
			}
		}
	}
}

func TestNotesSayWhatAnIsolatedNetworkDoesNotReach(t *testing.T) {
	t.Parallel()
	s := settings(t, network(stack.Network{Kind: stack.Isolated}), func(s *stack.Settings) {
		s.Deployment.Pools[0].EngineImage, s.Deployment.Pools[0].Model = privateECR, "s3://acme-models/x"
	})
	notes := s.Notes()
	if len(notes) != 2 || !strings.Contains(notes[0], "pool large's engine_image") ||
		!strings.Contains(notes[1], "pool large's model") {
		t.Errorf("the notes are %q", notes)
	}
}

func TestSettingsOfAnOrganisationAreChecked(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*stack.Settings){
		`vpc has "mine"`:     network(stack.Network{VPC: "mine", Subnets: []string{subnetA}}),
		"vpc has no subnets": network(stack.Network{VPC: aVPC}),
		"name it with vpc":   network(stack.Network{Subnets: []string{subnetA}}),
		"use one of them":    network(stack.Network{VPC: aVPC, Subnets: []string{subnetA}, Kind: stack.NAT}),
		"add endpoints=true": network(stack.Network{VPC: aVPC, Subnets: []string{subnetA}, RouteTables: []string{aTable}}),
		"2 subnets and 3 route_tables": network(stack.Network{VPC: aVPC, Subnets: []string{subnetA, subnetB}, Endpoints: true,
			RouteTables: []string{aTable, aTable, aTable}}),
		`network is "secret"`:       network(stack.Network{Kind: "secret"}),
		`kms_table is "alias/mine"`: func(s *stack.Settings) { s.Keys.Table = "alias/mine" },
		"kms_read is a key of us-east-1": func(s *stack.Settings) {
			s.Keys.Read = []string{strings.Replace(modelsKey, "eu-central-1", "us-east-1", 1)}
		},
		`role_path is "acme"`:  func(s *stack.Settings) { s.Identity.Path = "acme" },
		`role_prefix is "a b"`: func(s *stack.Settings) { s.Identity.Prefix = "a b" },
		`boundary is "a\tb"`:   func(s *stack.Settings) { s.Identity.Boundary = "a\tb" },
	} {
		if err := settings(t, change).Check(); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}

// Everything that an organisation may demand at once is a template without faults.
func TestLinterFindsNothingInAnOrganisationsTemplate(t *testing.T) {
	t.Parallel()
	lint := tool(t, "cfn-lint")
	file := t.TempDir() + "/template.json"
	made := synth(t, settings(t, withKeys, func(s *stack.Settings) {
		s.Network = stack.Network{
			VPC: aVPC, Subnets: []string{subnetA, subnetB}, Endpoints: true, RouteTables: []string{aTable},
		}
		s.Identity = stack.Identity{Boundary: "org/boundary", Path: "/acme/", Prefix: "app-"}
		s.Deployment.Pools[0].EngineImage = privateECR
	}))
	if err := os.WriteFile(file, made.text, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, nil, lint, "--ignore-checks", "W3005", "--regions", "eu-central-1", "--", file)
}
