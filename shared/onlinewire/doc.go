// Package onlinewire is what the process that listens for clients and the workers agree on
// for online requests: those of clients that wait for the answer.
//
//	client ─HTTP─▶ functions/online ─HTTP over a Unix socket─▶ gpuworker/online ─HTTP─▶ server
//
// The socket takes POST requests at the paths of OpenAI's API. The body already names the
// model as the server knows it. An answer with the header Outcome is the worker's own: its
// value says whether another worker may get the request. Any other answer is the server's,
// as it is; the trailer Broken says that it broke off.
//
// The package reads and writes no document and decides nothing about servers.
package onlinewire

import (
	"net/http"
	"time"
)

// Headers between the two sides.
const (
	// Outcome says that the answer is the worker's, and what to do: its values follow.
	Outcome = "Rollout-Outcome"
	// Wait is how many milliseconds the request may wait for a slot.
	Wait = "Rollout-Wait-Ms"
	// Broken is a trailer that says why the answer broke off.
	Broken = "Rollout-Broken"
)

// Begun is the status of the interim answer with which a worker says that it passes the
// request to a server now. One that ends without it has not begun.
const Begun = http.StatusProcessing

// Drained is the value of Broken if the worker's drain cut the answer off: its server lives.
const Drained = "the worker ended before the answer did"

// WholeTime is how long a whole answer may take, unless the config bounds requests: as long as
// OpenAI's clients wait.
const WholeTime = 10 * time.Minute

// Values of Outcome.
const (
	// Elsewhere says that no server has the request: another worker may get it.
	Elsewhere = "elsewhere"
	// Full says the same, because too many requests wait.
	Full = "full"
	// Failed says that it failed for good: it must not be repeated.
	Failed = "failed"
)

// MaxBody bounds the body of a request: 32 MiB.
const MaxBody = 32 << 20

// Paths returns the paths of online requests below /v1/.
func Paths() []string { return []string{"chat/completions", "completions", "embeddings", "responses"} }
