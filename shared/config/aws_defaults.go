package config

import "time"

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
		provisioning:       []string{ProvisioningSpot, ProvisioningStandard},
	}
}

// DefaultFleet returns a fleet of at most 8 machines a pool and one machine for
// every 4 open shards. Its instance types have the smallest GPUs of three
// generations; its engine image is vLLM's.
func DefaultFleet() Fleet {
	return Fleet{
		MaxMachines:      8,
		ShardsPerMachine: 4,
		IdleTimeout:      Duration(5 * time.Minute),
		InstanceTypes:    []string{"g6.xlarge", "g5.xlarge", "g4dn.xlarge"},
		EngineImage:      "vllm/vllm-openai:v0.11.0",
	}
}
