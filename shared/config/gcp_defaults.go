package config

import "time"

// gcp is the entry of Google Cloud in the table of providers. rollout starts no machines
// there.
func gcp() provider {
	return provider{
		name:   ProviderGCP,
		tables: []string{"project", "gcs", "firestore", "pubsub"},
		cloud:  func() Cloud { return Cloud{Name: "rollout"} },
		health: DefaultCloudHealth,
		// Half of the 30 s between a spot machine's preemption notice and its end.
		drainBudget: Duration(15 * time.Second),
		derive:      deriveGCP,
		check:       checkGCP,
		bucketKey:   "cloud.gcs.bucket",
	}
}
