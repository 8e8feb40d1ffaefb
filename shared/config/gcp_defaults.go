package config

import "time"

// gcp is the entry of Google Cloud in the table of providers.
func gcp() provider {
	return provider{
		name:   ProviderGCP,
		tables: []string{"project", "gcs", "firestore", "pubsub"},
		cloud:  func() Cloud { return Cloud{Name: "rollout", Fleet: defaultGCPFleet()} },
		health: DefaultCloudHealth,
		// Half of the 30 s between a spot machine's preemption notice and its end.
		drainBudget:        Duration(15 * time.Second),
		derive:             deriveGCP,
		check:              checkGCP,
		bucketKey:          "cloud.gcs.bucket",
		instanceType:       gcpMachineType,
		instanceTypeRemedy: `write one such as "g2-standard-8"`,
		maxInstanceTypes:   10,
		jobs:               true,
		provisioning:       []string{ProvisioningSpot, ProvisioningFlexStart, ProvisioningStandard},
	}
}

// defaultGCPFleet is DefaultFleet with machines of Google Cloud: one L4, and memory
// enough to load a model as large as its GPU.
func defaultGCPFleet() Fleet {
	f := DefaultFleet()
	f.InstanceTypes = []string{"g2-standard-8", "g2-standard-12"}
	return f
}
