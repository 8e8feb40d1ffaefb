package stack

import (
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsautoscaling"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3assets"
	"github.com/aws/jsii-runtime-go"

	"rollout/shared/config"
	"rollout/shared/core/gpus"
	"rollout/shared/fault"
)

const (
	// The root volume must hold the machine image, and where machines have no disks of
	// their own an engine's container image and a model. Each image has its own name for it.
	rootDevice, trainingRootDevice = "/dev/sda1", "/dev/xvda"
	// Throughputs of the root volume in MB/s: what is free of charge, and what is worth its
	// price where images and models lie on it.
	freeThroughput, fastThroughput = 125, 500
	// A volume has so many MB/s for each of its IOPS, of which the first are free.
	throughputPerIOPS, freeIOPS = 4, 3000
	maxUserData                 = 16 << 10 // in bytes, before they are encoded
)

// machines adds the network of the machines, and a group of machines for each pool.
func (b *builder) machines() {
	at := b.network()
	awslogs.NewLogGroup(b.stack, jsii.String("Log-machines"), &awslogs.LogGroupProps{
		LogGroupName:  jsii.String(b.machineLog()),
		Retention:     awslogs.RetentionDays_ONE_WEEK,
		RemovalPolicy: awscdk.RemovalPolicy_DESTROY,
	})
	program := awss3assets.NewAsset(b.stack, jsii.String("Program"), &awss3assets.AssetProps{Path: &b.WorkerBinary})
	for _, pool := range b.Deployment.Pools {
		b.machineGroup(pool, at, program)
	}
}

// machineGroup adds the group of a pool: spot machines of the types that are cheap and
// unlikely to be interrupted, or, if the pool says so, machines at the list price. It is
// empty until there is work. The functions coordinate and reclaim raise its desired
// capacity, and machines terminate themselves. The template sets no desired capacity,
// because a new deployment would then terminate working machines.
func (b *builder) machineGroup(pool config.Pool, at place, program awss3assets.Asset) {
	fleet, cloud := b.cloud.Fleet, b.cloud
	machines := b.Deployment.MachinesOf(pool)
	name := cloud.FleetName(pool.Name)
	does, device, work := "answers prompts", rootDevice, b.workerGrants(pool.Name)
	if pool.Trains() {
		does, device, work = "trains", trainingRootDevice, b.trainerGrants(pool.Name)
	}
	grants := append(
		join(work, b.readModel(pool), b.readImage(pool), b.readKeys()),
		grant{
			id:        "LeaveTheFleet",
			actions:   []string{"autoscaling:TerminateInstanceInAutoScalingGroup"},
			resources: b.groupArns(pool),
			why: "A group's name is preceded by an id that it gets when it is made; " +
				"IAM can't say which machine of the group.",
		},
		grant{
			id:        "FetchTheWorker",
			actions:   []string{"s3:GetObject"},
			resources: []string{*program.Bucket().ArnForObjects(program.S3ObjectKey())},
		},
	)
	grants = append(append(grants, b.writeMachineLog()), b.openSessions()...)
	roleID := "MachineRole-" + pool.Name
	role := b.role(roleID, "ec2.amazonaws.com", "rollout: "+name+" "+does, grants)
	template := awsec2.NewLaunchTemplate(b.stack, jsii.String("Machine-"+pool.Name), &awsec2.LaunchTemplateProps{
		LaunchTemplateName: &name,
		MachineImage:       b.imageOf(b.Deployment.ImageOf(pool)),
		Role:               role,
		SecurityGroup:      at.group,
		UserData:           awsec2.UserData_Custom(jsii.String(b.userData(pool, *program.S3ObjectUrl()))),
		HttpTokens:         awsec2.LaunchTemplateHttpTokens_REQUIRED,
		// The engine's container is one network hop farther away than the worker, so
		// it can't get the machine's credentials.
		HttpPutResponseHopLimit: jsii.Number(1),
		EbsOptimized:            jsii.Bool(true),
		BlockDevices: &[]*awsec2.BlockDevice{
			{
				DeviceName: &device,
				Volume:     awsec2.BlockDeviceVolume_Ebs(jsii.Number(machines.DiskGB), b.rootVolume(pool, machines)),
			},
		},
	})
	b.identifyProfile(template, roleID)
	for _, key := range slices.Sorted(maps.Keys(machines.Tags)) {
		awscdk.Tags_Of(template).Add(jsii.String(key), jsii.String(machines.Tags[key]), nil)
	}
	var types []*awsautoscaling.LaunchTemplateOverrides
	for _, t := range machines.InstanceTypes {
		types = append(types, &awsautoscaling.LaunchTemplateOverrides{InstanceType: awsec2.NewInstanceType(&t)})
	}
	group := awsautoscaling.NewAutoScalingGroup(
		b.stack,
		jsii.String("Fleet-"+pool.Name),
		&awsautoscaling.AutoScalingGroupProps{
			AutoScalingGroupName: &name,
			Vpc:                  at.vpc,
			MinCapacity:          jsii.Number(0),
			MaxCapacity:          jsii.Number(fleet.MaxMachines),
			// A recommendation to rebalance does not interrupt: most machines stay, and the
			// next one gets the same advice.
			CapacityRebalance: jsii.Bool(machines.DrainOnRebalance),
			// Without it, Auto Scaling would terminate working machines to rebalance
			// the zones whenever an idle machine has left.
			NewInstancesProtectedFromScaleIn: jsii.Bool(true),
			GroupMetrics: &[]awsautoscaling.GroupMetrics{awsautoscaling.NewGroupMetrics(
				awsautoscaling.GroupMetric_DESIRED_CAPACITY(), awsautoscaling.GroupMetric_IN_SERVICE_INSTANCES())},
			MixedInstancesPolicy: &awsautoscaling.MixedInstancesPolicy{
				LaunchTemplate:          template,
				LaunchTemplateOverrides: &types,
				InstancesDistribution:   bought(machines),
			},
		},
	)
	suppress(child(group), suppression{
		"AwsSolutions-AS3",
		"Machines come and go by the minute, as there is work; the dashboard shows how many there are.",
	}, suppression{
		"CdkNagValidationFailure",
		"The check of encrypted disks does not know groups of several types of machines; " +
			"the disk of the launch template is encrypted.",
	})
}

// imageOf returns the machine image of that name. A parameter is read when a machine
// starts, not when the stack is deployed, so that later machines have newer drivers.
func (b *builder) imageOf(name string) awsec2.IMachineImage {
	if strings.HasPrefix(name, "ami-") {
		return awsec2.MachineImage_GenericLinux(&map[string]*string{b.cloud.Region: &name}, nil)
	}
	return awsec2.MachineImage_ResolveSsmParameterAtLaunch(&name, nil)
}

// rootVolume returns the options of the machines' root volume.
func (b *builder) rootVolume(p config.Pool, m config.PoolMachines) *awsec2.EbsDeviceOptions {
	throughput := m.DiskThroughput
	if throughput == 0 {
		throughput = freeThroughput
		if !p.Trains() && slices.ContainsFunc(m.InstanceTypes, lacksDisk) {
			throughput = fastThroughput
		}
	}
	o := &awsec2.EbsDeviceOptions{
		VolumeType:          awsec2.EbsDeviceVolumeType_GP3,
		Encrypted:           jsii.Bool(true),
		DeleteOnTermination: jsii.Bool(true),
		Throughput:          jsii.Number(throughput),
	}
	if b.Keys.Disks != "" {
		o.KmsKey = b.diskKey()
	}
	if iops := throughput * throughputPerIOPS; iops > freeIOPS {
		o.Iops = jsii.Number(iops)
	}
	return o
}

// lacksDisk reports whether machines of the type may have no disk of their own.
func lacksDisk(instanceType string) bool {
	m, known := gpus.Of(instanceType)
	return !known || m.LocalGB == 0
}

// bought returns how a pool's machines are bought.
func bought(m config.PoolMachines) *awsautoscaling.InstancesDistribution {
	d := &awsautoscaling.InstancesDistribution{
		OnDemandBaseCapacity:                jsii.Number(m.OnDemandBase),
		OnDemandPercentageAboveBaseCapacity: jsii.Number(math.Round(100 * m.OnDemandShare)),
		SpotAllocationStrategy:              awsautoscaling.SpotAllocationStrategy_PRICE_CAPACITY_OPTIMIZED,
	}
	if m.MaxPrice > 0 {
		d.SpotMaxPrice = jsii.String(strconv.FormatFloat(m.MaxPrice, 'f', -1, 64))
	}
	return d
}

// machineLog returns the name of the log group to which machines that could not work write the
// end of their logs. It costs nothing while nothing is written.
func (s Settings) machineLog() string { return "/rollout/" + s.Deployment.Cloud.Name + "/machines" }

// writeMachineLog allows writing to the machines' log.
func (b *builder) writeMachineLog() grant {
	return grant{
		id:        "WriteLog",
		actions:   []string{"logs:CreateLogStream", "logs:PutLogEvents"},
		resources: []string{b.arn("logs", "log-group:"+b.machineLog()+":log-stream:*")},
		why:       "A stream has the id of its machine, which it gets when it starts.",
	}
}

// openSessions allows what the agent of Session Manager needs, if people may open sessions.
func (b *builder) openSessions() []grant {
	if !b.Sessions {
		return nil
	}
	return []grant{{
		id: "OpenSessions",
		actions: []string{
			"ssm:UpdateInstanceInformation",
			"ssmmessages:CreateControlChannel",
			"ssmmessages:CreateDataChannel",
			"ssmmessages:OpenControlChannel",
			"ssmmessages:OpenDataChannel",
		},
		resources: []string{"*"},
		why:       "The actions of Session Manager's agent know no resources.",
	}}
}

// readModel allows reading the pool's model if it lies in a bucket.
func (b *builder) readModel(p config.Pool) []grant {
	bucket, folder := p.ModelBucket()
	if bucket == "" {
		return nil
	}
	arn := strings.Join([]string{"arn", b.partition, "s3", "", "", bucket}, ":")
	return []grant{
		{
			id:        "ReadTheModel",
			actions:   []string{"s3:GetObject"},
			resources: []string{arn + "/" + folder, arn + "/" + folder + "/*"},
			why:       "The files of the pool's model have names that the config does not know.",
		},
		{
			id:         "ListTheModel",
			actions:    []string{"s3:ListBucket"},
			resources:  []string{arn},
			conditions: map[string]any{"StringLike": map[string]any{"s3:prefix": []string{folder, folder + "/*"}}},
		},
	}
}

// checkWorkerBinary returns NotFound if the worker program has not been built.
func (s Settings) checkWorkerBinary() error {
	if info, err := os.Stat(s.WorkerBinary); err != nil || !info.Mode().IsRegular() {
		return &fault.Error{
			Kind:   fault.NotFound,
			Op:     "find the worker " + s.WorkerBinary,
			Err:    err,
			Remedy: "build it with make machine-worker",
		}
	}
	return nil
}

// userData returns the script that a machine of the pool runs when it starts:
// exports of the machine's settings, then BootScript without its comments. The
// program is the S3 URL of the worker program.
func (s Settings) userData(pool config.Pool, program string) string {
	values := map[string]string{
		"AWS_REGION":           s.Deployment.Cloud.Region,
		"ROLLOUT_CONFIG":       s.Config,
		"ROLLOUT_POOL":         pool.Name,
		"ROLLOUT_MODEL":        pool.Model,
		"ROLLOUT_LOGS":         s.machineLog(),
		"ROLLOUT_READY_WITHIN": wholeSeconds(s.Deployment.MachinesOf(pool).BootDeadline),
		"ROLLOUT_WORKER":       program,
	}
	script := "#!/usr/bin/env bash\n"
	for _, name := range slices.Sorted(maps.Keys(values)) {
		script += fmt.Sprintf("export %s=%s\n", name, quote(values[name]))
	}
	return script + withoutComments(s.BootScript)
}

// comment matches a line of a script that has nothing but a comment.
var comment = regexp.MustCompile(`(?m)^[ \t]*#( .*)?\n`)

// withoutComments returns a script without its comments, a quarter of it, because user data
// has little room. Texts that the script writes into files also lose lines that begin with
// "# ", or consist of "#".
func withoutComments(script string) string { return comment.ReplaceAllString(script, "") }

// longestProgram is as long as the longest S3 URL of the worker program, which is known
// when the stack is deployed.
var longestProgram = "s3://cdk-hnb659fds-assets-123456789012-ap-southeast-1/" + strings.Repeat("0", 64) + ".zip"

// checkUserData returns Invalid if EC2 would refuse the user data of a pool's machines.
func (s Settings) checkUserData() error {
	for _, pool := range s.Deployment.Pools {
		if size := len(s.userData(pool, longestProgram)); size > maxUserData {
			return &fault.Error{
				Kind: fault.Invalid,
				Op:   "write the user data of pool " + pool.Name,
				Err: fault.New(fault.Invalid, "it has %d bytes, and EC2 takes %d: each apostrophe of the config takes 4",
					size, maxUserData),
				Remedy: "leave out settings that have their default, and apostrophes",
			}
		}
	}
	return nil
}

// wholeSeconds returns a duration in seconds, for a shell.
func wholeSeconds(d config.Duration) string { return strconv.Itoa(int(d.Std().Seconds())) }

// quote quotes a text as one word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
