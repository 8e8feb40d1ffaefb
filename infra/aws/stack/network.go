package stack

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
	"github.com/aws/jsii-runtime-go"

	"rollout/shared/config"
)

// Network says where machines run: in a network that the stack makes, or in an existing one.
type Network struct {
	// Kind is that of the made network, one of Kinds. "" is Public.
	Kind string
	// VPC, Subnets and SecurityGroup are ids of existing ones. Without VPC the stack makes
	// a network. Without SecurityGroup it makes a group in VPC.
	VPC           string
	Subnets       []string
	SecurityGroup string
	// Endpoints adds endpoints of the services that machines call. RouteTables are those of
	// Subnets, one for all or one for each: without them there are no endpoints for S3 and
	// DynamoDB in an existing network.
	Endpoints   bool
	RouteTables []string
}

// Kinds of networks that the stack makes.
const (
	Public   = "public"   // public subnets: free, and nothing can connect to the machines
	NAT      = "nat"      // private subnets that share a NAT gateway, which costs by the hour
	Isolated = "isolated" // private subnets that reach the services' endpoints alone
)

var (
	vpcID           = regexp.MustCompile(`^vpc-[0-9a-f]{8,17}$`)
	subnetID        = regexp.MustCompile(`^subnet-[0-9a-f]{8,17}$`)
	securityGroupID = regexp.MustCompile(`^sg-[0-9a-f]{8,17}$`)
	routeTableID    = regexp.MustCompile(`^rtb-[0-9a-f]{8,17}$`)
)

// problems returns what is wrong with the network.
func (n Network) problems() (problems []string) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	check := func(name, example string, valid *regexp.Regexp, values ...string) {
		for _, v := range values {
			if v != "" && !valid.MatchString(v) {
				add("%s has %q: write ids such as %s", name, v, example)
			}
		}
	}
	check("vpc", "vpc-0123456789abcdef0", vpcID, n.VPC)
	check("subnets", "subnet-0123456789abcdef0", subnetID, n.Subnets...)
	check("security_group", "sg-0123456789abcdef0", securityGroupID, n.SecurityGroup)
	check("route_tables", "rtb-0123456789abcdef0", routeTableID, n.RouteTables...)
	switch n.Kind {
	case "", Public, NAT, Isolated:
	default:
		add("network is %q: use %s, %s or %s", n.Kind, Public, NAT, Isolated)
	}
	switch {
	case n.VPC == "" && (len(n.Subnets) > 0 || n.SecurityGroup != "" || len(n.RouteTables) > 0):
		add("subnets, security_group and route_tables are those of an existing network: name it with vpc")
	case n.VPC != "" && n.Kind != "":
		add("network describes a network that is made, and vpc names one that exists: use one of them")
	case n.VPC != "" && len(n.Subnets) == 0:
		add("vpc has no subnets: name those for machines with subnets, one of each zone")
	case len(n.RouteTables) > 0 && !n.Endpoints:
		add("route_tables are for endpoints: add endpoints=true")
	case len(n.RouteTables) > 1 && len(n.RouteTables) != len(n.Subnets):
		add("there are %d subnets and %d route_tables: name one for all, or one for each", len(n.Subnets), len(n.RouteTables))
	}
	return problems
}

// place is where machines run.
type place struct {
	vpc   awsec2.IVpc
	group awsec2.ISecurityGroup
}

// network returns where machines run. It makes what does not exist.
func (b *builder) network() place {
	p := place{vpc: b.existingNetwork()}
	if p.vpc == nil {
		p.vpc = b.newNetwork()
	}
	if id := b.Network.SecurityGroup; id != "" {
		p.group = awsec2.SecurityGroup_FromSecurityGroupId(b.stack, jsii.String("Wall"), &id,
			&awsec2.SecurityGroupImportOptions{Mutable: jsii.Bool(false)})
	} else {
		p.group = b.wall(p.vpc)
	}
	if b.Network.Endpoints || b.Network.Kind == Isolated {
		b.endpoints(p)
	}
	return p
}

// existingNetwork returns the network that the settings name, or nil. The CDK asks for the
// names of zones, and uses them only to tell subnets apart.
func (b *builder) existingNetwork() awsec2.IVpc {
	n := b.Network
	if n.VPC == "" {
		return nil
	}
	zones, tables := make([]string, len(n.Subnets)), make([]string, len(n.Subnets))
	for i := range n.Subnets {
		zones[i] = fmt.Sprintf("zone-%d", i)
		if len(n.RouteTables) > 0 {
			tables[i] = n.RouteTables[i%len(n.RouteTables)]
		}
	}
	attributes := &awsec2.VpcAttributes{VpcId: &n.VPC, AvailabilityZones: jsii.Strings(zones...),
		PrivateSubnetIds: jsii.Strings(n.Subnets...)}
	if len(n.RouteTables) > 0 {
		attributes.PrivateSubnetRouteTableIds = jsii.Strings(tables...)
	}
	vpc := awsec2.Vpc_FromVpcAttributes(b.stack, jsii.String("Network"), attributes)
	awscdk.Annotations_Of(vpc).AcknowledgeWarning(jsii.String("@aws-cdk/aws-ec2:noSubnetRouteTableId"),
		jsii.String("Only endpoints of S3 and DynamoDB need route tables."))
	return vpc
}

// newNetwork adds a network for the machines. Public subnets are free; a NAT gateway for
// private ones costs more than a small machine.
func (b *builder) newNetwork() awsec2.IVpc {
	zones := make([]string, cmp.Or(b.Zones, zonesOf(b.cloud.Region)))
	for i := range zones {
		zones[i] = *awscdk.Fn_Select(jsii.Number(i), awscdk.Fn_GetAzs(&b.cloud.Region))
	}
	const bitsOfMachines, bitsOfGateways = 22, 28
	subnets := []*awsec2.SubnetConfiguration{
		{Name: jsii.String("Machines"), SubnetType: awsec2.SubnetType_PUBLIC, CidrMask: jsii.Number(bitsOfMachines),
			MapPublicIpOnLaunch: jsii.Bool(true)},
	}
	gateways := 0
	switch b.Network.Kind {
	case NAT:
		gateways = 1
		subnets = []*awsec2.SubnetConfiguration{
			{Name: jsii.String("Machines"), SubnetType: awsec2.SubnetType_PRIVATE_WITH_EGRESS,
				CidrMask: jsii.Number(bitsOfMachines)},
			{Name: jsii.String("Gateways"), SubnetType: awsec2.SubnetType_PUBLIC, CidrMask: jsii.Number(bitsOfGateways),
				MapPublicIpOnLaunch: jsii.Bool(false)},
		}
	case Isolated:
		subnets = []*awsec2.SubnetConfiguration{
			{Name: jsii.String("Machines"), SubnetType: awsec2.SubnetType_PRIVATE_ISOLATED,
				CidrMask: jsii.Number(bitsOfMachines)},
		}
	}
	vpc := awsec2.NewVpc(b.stack, jsii.String("Network"), &awsec2.VpcProps{
		AvailabilityZones:   jsii.Strings(zones...),
		NatGateways:         jsii.Number(gateways),
		SubnetConfiguration: &subnets,
		GatewayEndpoints: &map[string]*awsec2.GatewayVpcEndpointOptions{
			"S3":       {Service: awsec2.GatewayVpcEndpointAwsService_S3()},
			"DynamoDB": {Service: awsec2.GatewayVpcEndpointAwsService_DYNAMODB()},
		},
		// To restrict the default group, the CDK would add a function of its own.
		// No machine is in that group.
		RestrictDefaultSecurityGroup: jsii.Bool(false),
	})
	suppress(child(vpc), suppression{
		"AwsSolutions-VPC7",
		"A log of every connection would cost more than it tells: nobody can connect to the machines, " +
			"and what they ask AWS for can be logged there.",
	})
	return vpc
}

// wall adds the machines' security group. It admits no incoming connection, and outgoing
// ones only to port 443.
func (b *builder) wall(vpc awsec2.IVpc) awsec2.ISecurityGroup {
	group := awsec2.NewSecurityGroup(b.stack, jsii.String("Wall"), &awsec2.SecurityGroupProps{
		Vpc:              vpc,
		AllowAllOutbound: jsii.Bool(false),
		Description:      jsii.String("rollout: machines are reached by nobody, and reach others by HTTPS"),
	})
	group.AddEgressRule(
		awsec2.Peer_AnyIpv4(),
		awsec2.Port_Tcp(jsii.Number(443)),
		jsii.String("AWS, images and models"),
		nil,
	)
	return group
}

// endpoints adds endpoints of the services that machines call, which only machines can
// reach. A made network has those of S3 and DynamoDB, which are free, in any case.
func (b *builder) endpoints(p place) {
	group := awsec2.NewSecurityGroup(b.stack, jsii.String("EndpointWall"), &awsec2.SecurityGroupProps{
		Vpc:              p.vpc,
		AllowAllOutbound: jsii.Bool(false),
		Description:      jsii.String("rollout: endpoints are reached by machines"),
	})
	group.AddIngressRule(p.group, awsec2.Port_Tcp(jsii.Number(443)), jsii.String("Machines"), nil)
	services := b.servicesOfMachines()
	for _, id := range slices.Sorted(maps.Keys(services)) {
		awsec2.NewInterfaceVpcEndpoint(b.stack, jsii.String("Endpoint-"+id), &awsec2.InterfaceVpcEndpointProps{
			Vpc: p.vpc, Service: services[id], SecurityGroups: &[]awsec2.ISecurityGroup{group}, Open: jsii.Bool(false),
		})
	}
	if len(b.Network.RouteTables) > 0 {
		p.vpc.AddGatewayEndpoint(jsii.String("S3"), &awsec2.GatewayVpcEndpointOptions{
			Service: awsec2.GatewayVpcEndpointAwsService_S3()})
		p.vpc.AddGatewayEndpoint(jsii.String("DynamoDB"), &awsec2.GatewayVpcEndpointOptions{
			Service: awsec2.GatewayVpcEndpointAwsService_DYNAMODB()})
	}
}

// servicesOfMachines returns the services, besides S3 and DynamoDB, that machines call.
func (b *builder) servicesOfMachines() map[string]awsec2.IInterfaceVpcEndpointService {
	services := map[string]awsec2.IInterfaceVpcEndpointService{
		"sqs":         awsec2.InterfaceVpcEndpointAwsService_SQS(),
		"autoscaling": awsec2.InterfaceVpcEndpointAwsService_AUTOSCALING(),
		"logs":        awsec2.InterfaceVpcEndpointAwsService_CLOUDWATCH_LOGS(),
	}
	if b.Sessions {
		services["ssm"] = awsec2.InterfaceVpcEndpointAwsService_SSM()
		services["ssmmessages"] = awsec2.InterfaceVpcEndpointAwsService_SSM_MESSAGES()
	}
	if len(b.Deployment.Secrets) > 0 {
		services["secretsmanager"] = awsec2.InterfaceVpcEndpointAwsService_SECRETS_MANAGER()
	}
	for _, pool := range b.Deployment.InferPools() {
		if _, private := b.Deployment.MachinesOf(pool).PrivateImage(); private {
			services["ecr-api"] = awsec2.InterfaceVpcEndpointAwsService_ECR()
			services["ecr-dkr"] = awsec2.InterfaceVpcEndpointAwsService_ECR_DOCKER()
		}
	}
	return services
}

// unreachable says which pools can't get their image or model from an isolated network.
func (s Settings) unreachable() (notes []string) {
	if !s.Machines || s.Network.Kind != Isolated {
		return nil
	}
	for _, pool := range s.Deployment.InferPools() {
		if _, private := s.Deployment.MachinesOf(pool).PrivateImage(); !private {
			notes = append(notes, "an isolated network does not reach the registry of pool "+pool.Name+
				"'s engine_image: use an image in ECR, or one that its ami has")
		}
		if pool.ModelSource() == config.ModelOfHub {
			notes = append(notes, "an isolated network does not reach the hub of pool "+pool.Name+
				"'s model: use a model in a bucket")
		}
	}
	return notes
}

// zonesOf returns how many availability zones every account has in a region, at least. A
// stack that asked for one more would fail to deploy. Spot machines are short in a
// different zone each day, so that a group looks into all of them.
func zonesOf(region string) int {
	switch region {
	case "us-east-1":
		return 6
	case "us-west-2", "ap-northeast-2":
		return 4
	case "us-west-1":
		return 2
	}
	return 3
}
