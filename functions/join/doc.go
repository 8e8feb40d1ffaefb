// Package join serves the ports of an installation on one machine to workers on others, which
// join it over gRPC with mutual TLS.
//
//	rollout join-token ─▶ Members.NewToken ─▶ join/token/<hash>
//	worker, token ──────▶ Enroll ───────────▶ join/member/<id>, certificate for a day
//	worker, certificate ▶ identify ─▶ rights ─▶ the installation's ports
//
// A certificate allows what a worker of its pool may do, and no more: a worker processes
// untrusted prompts. Package rights are checked at each request, above the ports, so that no
// service can forget them. A member that is revoked is refused within a few seconds.
//
// The client's side is package remote. This package never starts or ends a worker, and decides
// nothing about work: what a member should do next it reads in documents, as all workers do.
package join
