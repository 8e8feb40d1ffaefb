// Package grading scores the answers of a worker's runs.
//
//	answers of an item ─▶ Graders.Grade ─┬─▶ graders that need nothing else: at once
//	                                     └─▶ scoring services: queue ─▶ batch ─▶ POST ─▶ scores
//	                                         and plugins                      or call
//	                                                             all scores are in ─▶ members of the row
//
// Connect makes the services of a deployment, which all runs of a worker share;
// Services.Graders makes the graders of a run. A service has a queue, sends a
// batch of answers as soon as it may have another request in flight, and repeats
// failed requests with backoff. An answer waits at most max_wait for its score;
// after that, and when its context ends, it has none and a cause.
//
// The engine never waits for a service: a request's slot is free as soon as its
// answer is there. While a service is behind, AwaitRoom holds back further items,
// so that the answers that wait stay few.
//
// A service's fault is never a score, and never a failed item. The package writes
// no row and stores nothing. It calls only addresses of the deployment's config.
package grading
