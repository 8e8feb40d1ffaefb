// Package gcp implements the storage and capacity ports on Google Cloud: objects
// in Cloud Storage, documents in Firestore, queues in Pub/Sub, secrets in Secret
// Manager, and preemption notices from a Compute Engine instance's metadata; the fleet,
// as managed groups of machines (groups.go) or tasks of Cloud Run jobs (jobs.go), and how a
// machine leaves it (leave.go, task.go); and the doctor's checks of a project (project.go).
//
// Every driver passes the conformance suite of its port, against emulators and,
// on request, a real project. The SDK's own endpoint and credential variables
// decide where requests go (see Config); the package does not distinguish an
// emulator from Google Cloud.
//
// The package never creates a bucket, a database, a topic or a subscription, and
// never overwrites where its port says create. Every write has a condition, so
// that the SDK may repeat it: the SDK repeats no other write. It leaves retries of
// failed requests to the SDK and to the wrappers above the ports; requests to Compute
// Engine, which may all be repeated, are tried three times.
package gcp
