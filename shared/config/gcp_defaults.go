package config

import (
	"regexp"
	"time"
)

// gcpArm matches the series with processors of Arm.
var gcpArm = regexp.MustCompile(`^(t2a|c4a|n4a|a4x)-`)

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
		trainingTypes:      []string{"n2-standard-8", "n2d-standard-8", "c2-standard-8"},
		armType:            gcpArm,
		jobs:               true,
		provisioning:       []string{ProvisioningSpot, ProvisioningFlexStart, ProvisioningStandard},
		image:              gcpImage,
		imageRemedy:        `write an image or a family such as "projects/acme-ml/global/images/family/gpu"`,
		tagKey:             gcpLabelKey,
		tagValue:           gcpLabelValue,
		tagRemedy:          "labels have up to 63 of a-z, 0-9, _ and -, and a name begins with a letter",
		ownTags:            "goog",
		scheme:             "gs://",
		lacks: map[string]string{
			"disk_throughput": "a disk is as fast as it is large: set disk_gb",
			"max_price":       "spot machines have one price: remove it",
			"on_demand_base":  "a pool buys all its machines in one way: set provisioning",
			"on_demand_share": "a pool buys all its machines in one way: set provisioning",

			"drain_on_rebalance": "it takes machines back without such advice: remove it",
		},
	}
}

// defaultGCPFleet is DefaultFleet with machines of Google Cloud: one L4, and memory
// enough to load a model as large as its GPU. The larger ones are taken where the smaller
// ones are not to be had.
func defaultGCPFleet() Fleet {
	f := DefaultFleet()
	f.InstanceTypes = []string{"g2-standard-8", "g2-standard-12", "g2-standard-16", "g2-standard-32"}
	return f
}
