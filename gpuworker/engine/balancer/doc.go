// Package fleet is an engine over one or several inference servers that serve
// the same model.
//
// A request goes to the server with the most room. What it costs to find out
// whose fault a fault is, the fleet pays, so that nobody is blamed for a server
// that fails for everybody: see breaker. How many requests a server gets at
// once is fixed, or found by trying: see climb.
//
// Which server answers changes no request and no row. The fleet never asks a
// request twice (its caller does, and then it lands elsewhere), never queues
// one, and never asks a server that is away.
package balancer
