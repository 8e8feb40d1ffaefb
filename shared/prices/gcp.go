package prices

import (
	"rollout/shared/config"
	"rollout/shared/core/cost"
)

// Names of positions of Google Cloud.
const (
	FirestoreWrites  = "Firestore writes"
	FirestoreReads   = "Firestore reads"
	FirestoreDeletes = "Firestore deletes"
	StorageClassA    = "Cloud Storage class A"
	StorageClassB    = "Cloud Storage class B"
	PubSubKB         = "Pub/Sub KB" // a request counts as 1 KB at least
	CloudRunCalls    = "Cloud Run requests"
	CloudRunCPU      = "Cloud Run vCPU-seconds"
	CloudRunMemory   = "Cloud Run GiB-seconds"
)

// Types of the tasks of Cloud Run jobs, by the GPU that they have, and their class. They are
// as infra/gcp makes them.
const (
	taskL4  = 0.000187 + 8*0.000018 + 32*0.000002  // a second
	taskRTX = 0.000394 + 20*0.000018 + 80*0.000002 // a second
	// leastTask is the type of the cheapest one.
	leastTask = "cloud-run-l4"
)

// gcp are the list prices of us-central1. Spot machines cost 9 to 40 % of the list price; for
// L4 it is near 40 %, for the machines of trainings 17 to 27 %, which counts as 22 %. The prices
// of the latter are those that the API of the billing catalog gave, as SkyPilot keeps them
// (catalogs/v5/gcp/vms.csv of skypilot-org/skypilot-catalog, commit 0129130, read on 2026-11-30).
// The requests are those of runs of 65 to 136 shards.
func gcp() cost.Prices {
	return cost.Prices{
		Date: "2025-11",
		Source: "us-central1, cloud.google.com/{compute/all-pricing,run,firestore,storage,pubsub}/pricing, " +
			"cloud.google.com/stackdriver/pricing",
		Machines: map[string]float64{
			"g2-standard-4": 0.7068, "g2-standard-8": 0.8536, "g2-standard-12": 1.0004, "g2-standard-16": 1.1472,
			"g2-standard-32": 1.7344, "g2-standard-24": 2.0008, "g2-standard-48": 4.0016, "g2-standard-96": 8.0032,
			"g4-standard-48": 4.5, "a2-highgpu-1g": 3.6734, "a2-highgpu-2g": 7.3468, "a2-ultragpu-1g": 5.0688,
			"n2-standard-8": 0.3885, "n2d-standard-8": 0.338, "c2-standard-8": 0.4176,
			"a3-highgpu-1g": 11.06, "a3-highgpu-8g": 88.49,
			leastTask: taskL4 * 3600, "cloud-run-rtx-pro-6000": taskRTX * 3600,
		},
		Classes: map[string]float64{cost.Spot: 0.4, config.ProvisioningFlexStart: 0.5},
		Parts: map[string]float64{
			"n2-standard-8/" + cost.Spot: 0.22, "n2d-standard-8/" + cost.Spot: 0.22, "c2-standard-8/" + cost.Spot: 0.22,
		},
		Positions: []cost.Position{
			{Name: StorageClassA, Price: 0.005 / 1000, Run: 11, Shard: 1.1, MachineHour: 60},
			{Name: StorageClassB, Price: 0.0004 / 1000, Run: 15, Shard: 2.5},
			{Name: FirestoreWrites, Price: 0.09 / 100_000, Run: 12, Shard: 2.5, MachineHour: 375},
			{Name: FirestoreReads, Price: 0.03 / 100_000, Run: 5, Shard: 2.1, MachineHour: 1600},
			{Name: FirestoreDeletes, Price: 0.01 / 100_000},
			{Name: PubSubKB, Price: 40.0 / (1 << 30), Run: 20, Shard: 3.2},
			{Name: CloudRunCalls, Function: true, Price: 0.40 / 1e6, Run: 5, Shard: 1.02},
			{Name: CloudRunCPU, Function: true, Price: 0.000024, Run: 0.7, Shard: 0.16},
			{Name: CloudRunMemory, Function: true, Price: 0.0000025, Run: 0.8, Shard: 0.17},
		},
	}
}
