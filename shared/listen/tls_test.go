package listen_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollout/shared/fault"
	"rollout/shared/listen"
	"rollout/shared/secret"
)

// certificateFiles writes a certificate for localhost, and its key, and returns the certificate.
func certificateFiles(t *testing.T, cert, key string, serial int64) *x509.Certificate {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	for path, b := range map[string]pem.Block{cert: {Type: "CERTIFICATE", Bytes: der},
		key: {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(&b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// tokens is a secret.Store with an API token.
type tokens struct{}

func (tokens) Get(context.Context, string) (secret.Value, error) {
	return secret.NewValue("s3cr3t"), nil
}

func TestListenerSpeaksTLSToOtherMachines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certificateFiles(t, cert, key, 1)
	own := func() (*tls.Config, error) {
		c, err := tls.LoadX509KeyPair(cert, key)
		return &tls.Config{Certificates: []tls.Certificate{c}}, err
	}
	for name, c := range map[string]struct {
		addr    string
		tls     listen.TLS
		refused string
		scheme  string
	}{
		"loopback":                          {"127.0.0.1:0", listen.TLS{Authority: own}, "", "http"},
		"loopback with files":               {"127.0.0.1:0", listen.TLS{CertFile: cert, KeyFile: key}, "", "https"},
		"all addresses":                     {"0.0.0.0:0", listen.TLS{Authority: own}, "", "https"},
		"all addresses with files":          {"0.0.0.0:0", listen.TLS{CertFile: cert, KeyFile: key}, "", "https"},
		"all addresses behind a proxy":      {"0.0.0.0:0", listen.TLS{Plain: true, Authority: own}, "", "http"},
		"all addresses without certificate": {"0.0.0.0:0", listen.TLS{}, "over plain HTTP", ""},
		"certificate without key":           {"127.0.0.1:0", listen.TLS{CertFile: cert}, "needs its key", ""},
		"certificate and plain HTTP": {"127.0.0.1:0", listen.TLS{CertFile: cert, KeyFile: key, Plain: true},
			"no plain HTTP", ""},
		"missing files": {"127.0.0.1:0", listen.TLS{CertFile: dir + "/x", KeyFile: key},
			"read the server's certificate", ""},
		"key in the place of a certificate": {"127.0.0.1:0", listen.TLS{CertFile: key, KeyFile: key},
			"read the server's certificate", ""},
	} {
		l, _, err := listen.Open(t.Context(), c.addr, tokens{}, c.tls)
		if c.refused != "" {
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v, want Invalid with %q", name, err, c.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := listen.URL(l); !strings.HasPrefix(got, c.scheme+"://") {
			t.Errorf("%s: %s, want %s", name, got, c.scheme)
		}
		_ = l.Close() // it has no data
	}
}

// A certificate that is renewed in its files is shown to the next client.
func TestRenewedCertificateIsShown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	roots := x509.NewCertPool()
	roots.AddCert(certificateFiles(t, cert, key, 1))
	l, _, err := listen.Open(t.Context(), "127.0.0.1:0", tokens{}, listen.TLS{CertFile: cert, KeyFile: key})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = listen.Serve(t.Context(), l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusNoContent)
		}))
	}()
	serial := func() int64 {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots},
			DisableKeepAlives: true}}
		r, err := client.Get(listen.URL(l))
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close() // it is empty
		return r.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	if got := serial(); got != 1 {
		t.Errorf("the certificate has serial %d, want 1", got)
	}
	roots.AddCert(certificateFiles(t, cert, key, 2))
	later := time.Now().Add(time.Minute) // file systems may have coarse times
	if err := os.Chtimes(cert, later, later); err != nil {
		t.Fatal(err)
	}
	if got := serial(); got != 2 {
		t.Errorf("after the renewal the certificate has serial %d, want 2", got)
	}
	if err := os.WriteFile(key, []byte("half a k"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := serial(); got != 2 {
		t.Errorf("in the middle of a renewal the certificate has serial %d, want 2", got)
	}
}
