// Package gateway leads programs that call Google's hosts to emulators on this machine,
// where the SDK knows no variable for an emulator. It is a proxy with a certificate
// authority of its own:
//
//	program ──HTTPS_PROXY──▶ gateway ──CONNECT host:443──▶ the host's emulator, over TLS
//	        ◀── SSL_CERT_FILE: the authority that signed the emulator's certificate
//
// Each client of Go obeys the two variables. A host without an emulator is refused and
// noted, so that no test reaches the real one.
package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// validity is how long certificates are valid.
const validity = 24 * time.Hour

// Gateway is the proxy. It is safe for concurrent use.
type Gateway struct {
	authority *x509.Certificate
	key       *ecdsa.PrivateKey
	file      string // of the authority's certificate
	address   string

	mu      sync.Mutex
	hosts   map[string]string // addresses of emulators, by host
	refused []string
}

// Start serves a proxy on a port of the loopback interface until end is called. It writes
// the authority's certificate into dir.
func Start(dir string) (g *Gateway, end func(), err error) {
	g = &Gateway{hosts: map[string]string{}, file: filepath.Join(dir, "authority.pem")}
	if g.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "gateway"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validity),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &g.key.PublicKey, g.key)
	if err != nil {
		return nil, nil, err
	}
	if g.authority, err = x509.ParseCertificate(der); err != nil {
		return nil, nil, err
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(g.file, certificate, 0o600); err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	g.address = listener.Addr().String()
	server := &http.Server{Handler: g}
	go func() { _ = server.Serve(listener) }() // it ends with Close
	return g, func() { _ = server.Close() }, nil
}

// Environment returns the variables that lead a program's requests to the gateway.
// Addresses of this machine are reached directly.
func (g *Gateway) Environment() []string {
	return []string{"HTTPS_PROXY=http://" + g.address, "SSL_CERT_FILE=" + g.file, "SSL_CERT_DIR=" + os.DevNull}
}

// Certificate returns the TLS configuration of an emulator of the host.
func (g *Gateway) Certificate(host string) (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, g.authority, &key.PublicKey, g.key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		NextProtos: []string{"h2", "http/1.1"}}, nil
}

// Lead leads connections to the host's port 443 to the address of its emulator.
func (g *Gateway) Lead(host, address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hosts[host+":443"] = address
}

// Refused returns the hosts that programs wanted and that have no emulator.
func (g *Gateway) Refused() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.refused)
}

// ServeHTTP opens a tunnel; see http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	address := g.hosts[r.Host]
	if r.Method != http.MethodConnect || address == "" {
		g.refused = append(g.refused, r.Host)
		g.mu.Unlock()
		http.Error(w, "no emulator of "+r.Host, http.StatusForbidden)
		return
	}
	g.mu.Unlock()
	server, err := net.Dial("tcp", address)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer server.Close()
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // the client has gone
	}
	defer client.Close()
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	done := make(chan struct{}, 2)
	pass := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from) // until one side closes
		done <- struct{}{}
	}
	go pass(server, buffered)
	go pass(client, server)
	<-done
}
