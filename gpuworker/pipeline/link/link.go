// Package link is the connection between two ranks of a pipeline: TLS with one certificate
// that all ranks of a group hold, and that nobody else has.
//
// Messages and blocks of collectives go in; headers and what follows them come out. A message
// is sent only after wire.Prepare has made it whole. Every read has a deadline: a silent peer
// is an Unavailable fault, never a wait without end.
package link

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"sync"
	"time"

	"rollout/gpuworker/pipeline/wire"
	"rollout/shared/fault"
)

// Credential proves that a process belongs to a group. Rank 0 makes it and gives it to the
// ranks over their standard input. It does not print.
type Credential struct {
	Certificate []byte `json:"certificate"` // DER
	Key         []byte `json:"key"`         // PKCS #8
}

// String hides the key.
func (Credential) String() string { return "***" }

// serverName is the name in the certificate.
const serverName = "pipeline.rollout.internal"

// backdate is how long before it is made a certificate begins to be valid, and life how long
// it is valid after that. Connections outlive their certificates.
const (
	backdate = 5 * time.Minute
	life     = 24 * time.Hour
)

// NewCredential returns the credential of a new group.
func NewCredential(now time.Time) (Credential, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Credential{}, fault.WithKind(fault.Internal, err, "make the key of a pipeline")
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{Organization: []string{"rollout"}, CommonName: serverName},
		DNSNames: []string{serverName}, NotBefore: now.Add(-backdate), NotAfter: now.Add(life),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA:        true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return Credential{}, fault.WithKind(fault.Internal, err, "make the certificate of a pipeline")
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	return Credential{cert, pkcs8}, fault.WithKind(fault.Internal, err, "encode the key of a pipeline")
}

// Config returns the TLS settings of both sides.
func (c Credential) Config() (*tls.Config, error) {
	cert, err := x509.ParseCertificate(c.Certificate)
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "the certificate of a pipeline")
	}
	key, err := x509.ParsePKCS8PrivateKey(c.Key)
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "the key of a pipeline")
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: serverName, RootCAs: pool, ClientCAs: pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		Certificates: []tls.Certificate{{Certificate: [][]byte{c.Certificate}, PrivateKey: key}},
	}, nil
}

// Conn is a connection to another rank. One goroutine may read and several may send.
type Conn struct {
	conn net.Conn
	r    *bufio.Reader

	mu      sync.Mutex
	w       *bufio.Writer
	frame   []byte
	timeout time.Duration
}

// buffer is the size of the buffers of a connection.
const buffer = 64 << 10

// Dial connects to a rank. A handshake that does not prove the credential is Denied.
func Dial(ctx context.Context, address string, c *tls.Config, timeout time.Duration) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	raw, err := (&tls.Dialer{Config: c}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fault.WithKind(fault.Unavailable, err, "connect to a rank")
	}
	return New(raw, timeout), nil
}

// Accept completes the handshake of a connection that a rank has opened.
func Accept(ctx context.Context, raw net.Conn, c *tls.Config, timeout time.Duration) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn := tls.Server(raw, c)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, fault.WithKind(fault.Denied, err, "the handshake of a rank")
	}
	return New(conn, timeout), nil
}

// New returns a Conn over an open connection. timeout bounds every send and every body.
func New(c net.Conn, timeout time.Duration) *Conn {
	return &Conn{conn: c, r: bufio.NewReaderSize(c, buffer), w: bufio.NewWriterSize(c, buffer), timeout: timeout}
}

// Close ends the connection. Reads and sends in progress fail.
func (c *Conn) Close() error {
	if t, ok := c.conn.(*tls.Conn); ok {
		return t.NetConn().Close() // without a farewell, which waits for sends in progress
	}
	return c.conn.Close()
}

// Send sends a message. Faults are Unavailable; the connection is unusable then.
func (c *Conn) Send(p *wire.Prepared) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.conn.SetWriteDeadline(time.Now().Add(c.timeout))
	if err == nil {
		_, err = p.WriteTo(c.w)
	}
	return broken(errors.Join(err, c.w.Flush()), "send")
}

// SendBlock sends a block of a collective of the group. Faults are those of Send.
func (c *Conn) SendBlock(kind wire.Kind, number int64, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frame = wire.AppendBlock(c.frame[:0], kind, number, data)
	err := c.conn.SetWriteDeadline(time.Now().Add(c.timeout))
	if err == nil {
		_, err = c.conn.Write(c.frame)
	}
	return broken(err, "send")
}

// Header reads the next header, until the deadline.
func (c *Conn) Header(deadline time.Time) (wire.Header, error) {
	if err := c.conn.SetReadDeadline(deadline); err != nil {
		return wire.Header{}, broken(err, "read")
	}
	h, err := wire.ReadHeader(c.r)
	return h, broken(err, "read")
}

// Body returns the reader of what follows a header. It must arrive within the timeout.
func (c *Conn) Body() (io.Reader, error) {
	return c.r, broken(c.conn.SetReadDeadline(time.Now().Add(c.timeout)), "read")
}

// broken returns faults as they are, and other errors as Unavailable.
func broken(err error, what string) error {
	var f *fault.Error
	switch {
	case err == nil || errors.As(err, &f):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.New(fault.Unavailable, "%s: the rank was silent for too long", what)
	}
	return fault.WithKind(fault.Unavailable, err, "%s: the connection to a rank broke", what)
}
