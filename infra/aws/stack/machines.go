package stack

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsautoscaling"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3assets"
	"github.com/aws/jsii-runtime-go"

	"rollout/shared/config"
	"rollout/shared/fault"
)

const (
	// image is the parameter in which AWS keeps the id of its newest image with
	// NVIDIA's driver, Docker and NVIDIA's container toolkit.
	image = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
	// rootDevice and rootGigabytes have room for the image, an engine's
	// container and a model.
	rootDevice    = "/dev/sda1"
	rootGigabytes = 150
)

// fleet makes the network of the machines, and a group of them for each pool
// that answers prompts.
func (b *builder) fleet() {
	network, wall := b.network()
	program := awss3assets.NewAsset(b.stack, jsii.String("Program"), &awss3assets.AssetProps{Path: &b.WorkerBinary})
	for _, pool := range b.Deployment.InferPools() {
		b.group(pool, network, wall, program)
	}
}

// network makes a network of public subnets, for which nothing is paid: a
// gateway for private ones would cost more than a machine. Nobody reaches a
// machine from outside, and it reaches others by HTTPS alone.
func (b *builder) network() (awsec2.Vpc, awsec2.SecurityGroup) {
	zones := make([]string, b.Zones)
	for i := range zones {
		zones[i] = *awscdk.Fn_Select(jsii.Number(i), awscdk.Fn_GetAzs(&b.cloud.Region))
	}
	vpc := awsec2.NewVpc(b.stack, jsii.String("Network"), &awsec2.VpcProps{
		AvailabilityZones: jsii.Strings(zones...),
		NatGateways:       jsii.Number(0),
		SubnetConfiguration: &[]*awsec2.SubnetConfiguration{
			{Name: jsii.String("Machines"), SubnetType: awsec2.SubnetType_PUBLIC, CidrMask: jsii.Number(22), MapPublicIpOnLaunch: jsii.Bool(true)},
		},
		GatewayEndpoints: &map[string]*awsec2.GatewayVpcEndpointOptions{
			"S3":       {Service: awsec2.GatewayVpcEndpointAwsService_S3()},
			"DynamoDB": {Service: awsec2.GatewayVpcEndpointAwsService_DYNAMODB()},
		},
		RestrictDefaultSecurityGroup: jsii.Bool(false), // it would take a function of CDK's own; nothing is in that group
	})
	suppress(child(vpc), suppression{"AwsSolutions-VPC7", "A log of every connection would cost more than it tells: nobody can connect to the machines, and what they ask AWS for can be logged there."})
	wall := awsec2.NewSecurityGroup(b.stack, jsii.String("Wall"), &awsec2.SecurityGroupProps{
		Vpc: vpc, AllowAllOutbound: jsii.Bool(false), Description: jsii.String("rollout: machines are reached by nobody, and reach others by HTTPS"),
	})
	wall.AddEgressRule(awsec2.Peer_AnyIpv4(), awsec2.Port_Tcp(jsii.Number(443)), jsii.String("AWS, images and models"), nil)
	return vpc, wall
}

// group makes the machines of a pool: spot machines of whichever of the types
// are cheap and likely to stay. It is empty until there is work; coordinate
// and reclaim raise its size, and machines leave it by themselves. A template
// with a size would send working machines away when the stack is deployed
// again, so it has none.
func (b *builder) group(pool config.Pool, network awsec2.Vpc, wall awsec2.SecurityGroup, program awss3assets.Asset) {
	fleet, cloud := b.cloud.Fleet, b.cloud
	name := cloud.FleetName(pool.Name)
	grants := append(b.machine(pool.Name),
		grant{id: "LeaveTheFleet", actions: []string{"autoscaling:TerminateInstanceInAutoScalingGroup"}, resources: b.groupArns(pool),
			why: "A group's name is preceded by an id that it gets when it is made; IAM can't say which machine of the group."},
		grant{id: "FetchTheWorker", actions: []string{"s3:GetObject"}, resources: []string{*program.Bucket().ArnForObjects(program.S3ObjectKey())}})
	role := b.role("MachineRole-"+pool.Name, "ec2.amazonaws.com", "rollout: "+name+" answers prompts", grants)
	template := awsec2.NewLaunchTemplate(b.stack, jsii.String("Machine-"+pool.Name), &awsec2.LaunchTemplateProps{
		LaunchTemplateName: &name,
		MachineImage:       awsec2.MachineImage_FromSsmParameter(jsii.String(image), nil),
		Role:               role,
		SecurityGroup:      wall,
		UserData:           awsec2.UserData_Custom(jsii.String(b.userData(pool, *program.S3ObjectUrl()))),
		HttpTokens:         awsec2.LaunchTemplateHttpTokens_REQUIRED,
		// The engine's container is a hop farther than the worker, and gets
		// none of the machine's credentials.
		HttpPutResponseHopLimit: jsii.Number(1),
		EbsOptimized:            jsii.Bool(true),
		BlockDevices: &[]*awsec2.BlockDevice{{DeviceName: jsii.String(rootDevice), Volume: awsec2.BlockDeviceVolume_Ebs(jsii.Number(rootGigabytes), &awsec2.EbsDeviceOptions{
			VolumeType: awsec2.EbsDeviceVolumeType_GP3, Encrypted: jsii.Bool(true), DeleteOnTermination: jsii.Bool(true),
		})}},
	})
	var types []*awsautoscaling.LaunchTemplateOverrides
	for _, t := range fleet.InstanceTypes {
		types = append(types, &awsautoscaling.LaunchTemplateOverrides{InstanceType: awsec2.NewInstanceType(&t)})
	}
	group := awsautoscaling.NewAutoScalingGroup(b.stack, jsii.String("Fleet-"+pool.Name), &awsautoscaling.AutoScalingGroupProps{
		AutoScalingGroupName: &name,
		Vpc:                  network,
		MinCapacity:          jsii.Number(0),
		MaxCapacity:          jsii.Number(fleet.MaxMachines),
		CapacityRebalance:    jsii.Bool(true),
		// Else Auto Scaling would end working machines to even out its zones,
		// whenever one that is idle has left.
		NewInstancesProtectedFromScaleIn: jsii.Bool(true),
		GroupMetrics: &[]awsautoscaling.GroupMetrics{awsautoscaling.NewGroupMetrics(
			awsautoscaling.GroupMetric_DESIRED_CAPACITY(), awsautoscaling.GroupMetric_IN_SERVICE_INSTANCES())},
		MixedInstancesPolicy: &awsautoscaling.MixedInstancesPolicy{
			LaunchTemplate: template, LaunchTemplateOverrides: &types,
			InstancesDistribution: &awsautoscaling.InstancesDistribution{
				OnDemandBaseCapacity: jsii.Number(0), OnDemandPercentageAboveBaseCapacity: jsii.Number(0),
				SpotAllocationStrategy: awsautoscaling.SpotAllocationStrategy_PRICE_CAPACITY_OPTIMIZED,
			},
		},
	})
	suppress(child(group),
		suppression{"AwsSolutions-AS3", "Machines come and go by the minute, as there is work; the dashboard shows how many there are."},
		suppression{"CdkNagValidationFailure", "The check of encrypted disks does not know groups of several types of machines; the disk of the launch template is encrypted."})
}

// find looks for the worker's program.
func (s Settings) find() error {
	if info, err := os.Stat(s.WorkerBinary); err != nil || !info.Mode().IsRegular() {
		return &fault.Error{Kind: fault.NotFound, Op: "find the worker " + s.WorkerBinary, Err: err, Remedy: "make machine-worker builds it"}
	}
	return nil
}

// userData is the script that a machine of the pool runs when it starts: what
// there is to know, and then Boot.
func (b *builder) userData(pool config.Pool, program string) string {
	values := map[string]string{
		"AWS_REGION":           b.cloud.Region,
		"ROLLOUT_CONFIG":       b.Config,
		"ROLLOUT_POOL":         pool.Name,
		"ROLLOUT_MODEL":        pool.Model,
		"ROLLOUT_REVISION":     pool.Revision,
		"ROLLOUT_ENGINE_IMAGE": b.cloud.Fleet.EngineImage,
		"ROLLOUT_WORKER":       program,
	}
	script := "#!/usr/bin/env bash\n"
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		script += fmt.Sprintf("export %s=%s\n", name, quote(values[name]))
	}
	return script + b.BootScript
}

// quote makes a text one word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
