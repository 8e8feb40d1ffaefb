// Package gcp implements the storage and capacity ports on Google Cloud: objects
// in Cloud Storage, documents in Firestore, queues in Pub/Sub, secrets in Secret
// Manager, and preemption notices from a Compute Engine instance's metadata.
//
// Every driver passes the conformance suite of its port, against emulators and,
// on request, a real project. The SDK's own endpoint and credential variables
// decide where requests go (see Config); the package does not distinguish an
// emulator from Google Cloud.
//
// The package never creates a bucket, a database, a topic or a subscription, and
// never overwrites where its port says create. Every write has a condition, so
// that the SDK may repeat it: the SDK repeats no other write. It leaves retries of
// failed requests to the SDK and to the wrappers above the ports.
package gcp
