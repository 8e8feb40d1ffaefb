package ca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"sync"
	"time"

	"rollout/shared/clock"
	"rollout/shared/fault"
)

// ServerName is a name in every server's certificate. Workers check it instead of the address
// at which they reach a server: one authority has one installation, so that the holder of such
// a certificate is the server.
const ServerName = "server.rollout.internal"

// ClientLife is how long a client's certificate is valid. A holder renews it when RenewAfter of
// its life is over.
const (
	ClientLife = 24 * time.Hour
	RenewAfter = 2.0 / 3
	serverLife = 7 * 24 * time.Hour
)

// SignClient returns a certificate for the public key of a signing request (PKCS #10, DER), and
// when it ends. The holder's id becomes its common name; nothing else of the request counts. A
// request that is none, or is not signed with its own key, is Invalid.
func (a *Authority) SignClient(request []byte, id string, now time.Time) (der []byte, until time.Time, err error) {
	if len(request) > maxRequest {
		return nil, until, fault.New(fault.Invalid, "a request for a certificate of %d bytes", len(request))
	}
	csr, err := x509.ParseCertificateRequest(request)
	if err == nil {
		err = checkKey(csr.PublicKey) // before its signature: huge keys of other kinds take hours to check
	}
	if err == nil {
		err = csr.CheckSignature()
	}
	if err != nil {
		return nil, until, fault.WithKind(fault.Invalid, err, "read the request for a certificate")
	}
	until = now.Add(ClientLife).UTC().Truncate(time.Second)
	der, err = a.sign(&x509.Certificate{
		Subject:     pkix.Name{Organization: []string{"rollout"}, CommonName: id},
		NotAfter:    until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, csr.PublicKey, now)
	return der, until, err
}

// maxRequest bounds a request for a certificate, in bytes.
const maxRequest = 4 << 10

// checkKey accepts keys of the curve P-256, the only kind that workers make.
func checkKey(key any) error {
	if k, ok := key.(*ecdsa.PublicKey); !ok || k.Curve != elliptic.P256() {
		return errors.New("its key is not of the elliptic curve P-256")
	}
	return nil
}

// VerifyClient returns the id of the holder of a client's certificate. A certificate of another
// authority, one that has ended, and one for another use are Denied, with a remedy.
func (a *Authority) VerifyClient(cert *x509.Certificate, now time.Time) (id string, err error) {
	ofOther := &fault.Error{Kind: fault.Denied, Remedy: joinAgain,
		Err: errors.New("the worker's certificate is not of this installation's authority")}
	if cert.CheckSignatureFrom(a.cert) != nil { // before its dates, which a stranger may choose
		return "", ofOther
	}
	_, err = cert.Verify(x509.VerifyOptions{Roots: a.pool, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	var invalid x509.CertificateInvalidError
	switch {
	case err == nil && !cert.IsCA:
		return cert.Subject.CommonName, nil
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "", &fault.Error{Kind: fault.Denied, Remedy: joinAgain,
			Err: fmt.Errorf("the worker's certificate is valid from %s to %s", cert.NotBefore.UTC().Format(time.RFC3339),
				cert.NotAfter.UTC().Format(time.RFC3339))}
	}
	return "", ofOther
}

// joinAgain is the remedy for a certificate that does not hold.
const joinAgain = "make a token with `rollout join-token`, and start the worker with it"

// sign returns a certificate that begins shortly before now.
func (a *Authority) sign(template *x509.Certificate, key any, now time.Time) ([]byte, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template.SerialNumber, template.NotBefore = serial, now.Add(-backdate)
	template.KeyUsage |= x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key, a.key)
	return der, fault.WithKind(fault.Internal, err, "sign a certificate")
}

// ServerConfig returns the TLS settings of a server: a certificate with ServerName, the names of
// this machine, its addresses, and the given ones. The certificate is made again when half of
// its life is over. Callers set what they want of clients.
func (a *Authority) ServerConfig(c clock.Clock, names ...string) *tls.Config {
	s := &serverCertificate{authority: a, clock: c, names: names}
	return &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: s.get}
}

// serverCertificate is the present certificate of a server.
type serverCertificate struct {
	authority *Authority
	clock     clock.Clock
	names     []string

	mu          sync.Mutex
	cert        *tls.Certificate
	made, renew time.Time
}

func (s *serverCertificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	if s.cert != nil && now.Before(s.renew) && !now.Before(s.made) { // the clock may be set back
		return s.cert, nil
	}
	cert, err := s.authority.newServer(s.names, now)
	if err != nil {
		return nil, err
	}
	s.cert, s.made, s.renew = cert, now, now.Add(serverLife/2)
	return cert, nil
}

// newServer makes a key and a certificate of a server, with the authority's behind it: a worker
// that knows only the authority's fingerprint finds it there.
func (a *Authority) newServer(names []string, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fault.WithKind(fault.Internal, err, "make the key of a server")
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{Organization: []string{"rollout"}, CommonName: ServerName},
		NotAfter:    now.Add(serverLife),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{ServerName, "localhost"},
	}
	if host, err := os.Hostname(); err == nil {
		names = append(names[:len(names):len(names)], host)
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if isHostName.MatchString(name) {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	template.IPAddresses = append(template.IPAddresses, ownAddresses()...)
	der, err := a.sign(template, &key.PublicKey, now)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key}, nil
}

// isHostName matches the names that a certificate can hold; machines may have others.
var isHostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?$`)

// ownAddresses returns the addresses of this machine. One that can't be found is missing.
func ownAddresses() (ips []net.IP) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			ips = append(ips, n.IP)
		}
	}
	return ips
}
