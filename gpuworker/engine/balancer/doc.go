// Package balancer is an engine over one or several inference servers that serve
// the same model.
//
// A request goes to the server with the most room. How many requests a server
// gets at once is fixed, or found by trying: see concurrencyLimit. On a failure
// the balancer probes the server with a small question of its own, so that an
// outage is never charged to items: see State.
//
// The choice of the server changes no request and no row. The balancer never
// repeats a request (its caller does, and it then goes to another server), never
// queues one, and never sends one to a server that is set aside.
package balancer
