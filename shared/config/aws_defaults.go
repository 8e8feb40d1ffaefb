package config

import (
	"cmp"
	"regexp"
	"time"
)

// awsArm matches the types with processors of Amazon's own: a letter g among those after the
// generation. Examples: "c7g.large", "im4gn.xlarge".
var awsArm = regexp.MustCompile(`^(a1|[a-z]+[0-9]+[a-z]*g[a-z]*)\.`)

// aws is the entry of Amazon Web Services in the table of providers.
func aws() provider {
	return provider{
		name:   ProviderAWS,
		tables: []string{"s3", "dynamodb", "sqs"},
		cloud:  func() Cloud { return Cloud{Name: "rollout", Fleet: DefaultFleet()} },
		health: DefaultCloudHealth,
		// Half of the 120 s between a spot machine's interruption notice and its end.
		drainBudget:        Duration(60 * time.Second),
		derive:             deriveAWS,
		check:              checkAWS,
		bucketKey:          "cloud.s3.bucket",
		instanceType:       awsInstanceType,
		instanceTypeRemedy: `write one such as "g6.xlarge"`,
		maxInstanceTypes:   40, // the limit of an Auto Scaling group with mixed instances
		trainingTypes: []string{"c7i.2xlarge", "c6i.2xlarge", "c7a.2xlarge", "c6a.2xlarge", "c5.2xlarge",
			"m7i.2xlarge", "m6i.2xlarge", "m6a.2xlarge", "m5.2xlarge", "c7i.4xlarge"},
		armType:      awsArm,
		provisioning: []string{ProvisioningSpot, ProvisioningStandard},
		image:        awsImage,
		imageRemedy:  `write an image such as "ami-0123456789abcdef0", or an SSM parameter such as "/acme/gpu/ami-id"`,
		tagKey:       awsTagKey,
		tagValue:     awsTagValue,
		tagRemedy:    "use letters, digits, spaces and +-=._:/@: up to 128 in a name, and 256 in a value",
		ownTags:      "aws:",
		scheme:       "s3://",
	}
}

// DefaultFleet returns a fleet of at most 8 machines a pool and one machine for
// every 4 open shards. Its instance types have one GPU of 24 GB or more that vLLM still
// supports; its engine image is one of vLLM for CUDA 12, which runs with older drivers, too.
func DefaultFleet() Fleet {
	return Fleet{
		MaxMachines:      8,
		ShardsPerMachine: 4,
		IdleTimeout:      Duration(5 * time.Minute),
		BootPause:        Duration(time.Minute),
		InstanceTypes: []string{"g6.xlarge", "g6.2xlarge", "g6.4xlarge", "g6.8xlarge", "gr6.4xlarge",
			"g5.xlarge", "g5.2xlarge", "g5.4xlarge", "g5.8xlarge", "g6e.xlarge"},
		EngineImage: "vllm/vllm-openai:v0.21.0-cu129",
	}
}

// awsMachineImage is the SSM parameter with the id of AWS's newest machine image that has
// NVIDIA's driver, Docker and NVIDIA's container toolkit.
const awsMachineImage = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"

// awsTrainingImage is the SSM parameter with the id of the newest Amazon Linux: a training
// needs the worker program and nothing else.
const awsTrainingImage = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"

// ImageOf returns the machine image of a pool on AWS: an image, "ami-…", or the parameter of
// Systems Manager that has the id of one.
func (d Deployment) ImageOf(p Pool) string {
	image := awsMachineImage
	if p.Trains() {
		image = awsTrainingImage
	}
	return cmp.Or(d.MachinesOf(p).AMI, image)
}
