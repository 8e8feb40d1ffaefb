// Package ca is the certificate authority of an installation on one machine. Its processes and
// the workers that join it prove to each other who they are, over TLS.
//
//	D/tls/ca.pem, ca.key.pem ─▶ Authority ─┬─ ServerConfig ─▶ the process that listens
//	                                       ├─ SignClient ───▶ certificate of a worker
//	                                       └─ VerifyClient ◀─ certificate that a caller shows
//	Token (fingerprint, secret) ──────────▶ a worker, which trusts the authority by its fingerprint
//
// The key never leaves the folder. Certificates of servers live in memory and are made again
// before they end; those of clients last a day. All are of elliptic curve P-256, which browsers
// accept, too.
//
// The package knows no documents: who keeps tokens, and which certificates are revoked, is
// decided by package join of the functions.
package ca
