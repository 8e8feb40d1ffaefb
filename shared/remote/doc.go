// Package remote has the ports of an installation on another machine: documents, objects, queues
// and secrets over one gRPC connection with mutual TLS. It is how a worker joins `rollout up`
// from anywhere.
//
//	Join ─▶ certificate (first with a token, later kept in a folder, renewed) ─▶ Client
//	Client.Documents, Objects, Queues, Secrets ─▶ rollout.ports.v1 ─▶ functions/join ─▶ the ports there
//
// The drivers promise what their ports do, over a network that loses replies: wrap them in the
// ports' Reliable. They retry nothing themselves. The server's certificate must be of the
// authority that the token names, or that the folder keeps.
//
// A call whose caller has no valid certificate any more ends the client: see Client.Refused.
//
// The wire is described in portsv1/ports.proto; `make generate` writes its Go code.
package remote
