package listen

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"rollout/shared/fault"
)

// TLS says how a server that other machines can reach proves who it is. Without files it takes a
// certificate of Authority. It is not used at loopback addresses, unless there are files.
type TLS struct {
	CertFile, KeyFile string // PEM; they are read again when they change
	// Authority returns settings with a certificate that the installation itself signs. Nil has
	// none.
	Authority func() (*tls.Config, error)
	Plain     bool // speak HTTP everywhere: a proxy before the server speaks TLS
}

// settings returns the TLS settings of a server at an address; nil speaks plain HTTP.
func (t TLS) settings(addr string) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	given := t.CertFile != "" || t.KeyFile != ""
	switch {
	case given && (t.CertFile == "" || t.KeyFile == "" || t.Plain):
		return nil, &fault.Error{Kind: fault.Invalid,
			Err:    errors.New("a server's certificate needs its key, and no plain HTTP"),
			Remedy: "pass --tls-cert and --tls-key, or --plain-http"}
	case given:
		f := &files{cert: t.CertFile, key: t.KeyFile}
		if _, err := f.get(nil); err != nil {
			return nil, err
		}
		return withHTTP(&tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: f.get}), nil
	case loopback(host) || t.Plain:
		return nil, nil
	case t.Authority == nil:
		return nil, &fault.Error{Kind: fault.Invalid,
			Err:    fmt.Errorf("%s can be reached from other machines, over plain HTTP", addr),
			Remedy: "pass --tls-cert and --tls-key, or --plain-http if a proxy before it speaks TLS"}
	}
	c, err := t.Authority()
	if err != nil {
		return nil, err
	}
	return withHTTP(c), nil
}

// withHTTP lets the settings agree on HTTP/1.1, which is what Serve speaks.
func withHTTP(c *tls.Config) *tls.Config {
	c.NextProtos = []string{"http/1.1"}
	return c
}

// files is a certificate and its key in files. It is safe for concurrent use.
type files struct {
	cert, key string

	mu      sync.Mutex
	changed [2]time.Time
	current *tls.Certificate
}

// get returns the certificate, which is read again if a file has changed. While the files can't be
// read, such as in the middle of a renewal, the one before goes on.
func (f *files) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var changed [2]time.Time
	for i, path := range []string{f.cert, f.key} {
		if info, err := os.Stat(path); err == nil {
			changed[i] = info.ModTime()
		}
	}
	if f.current != nil && changed == f.changed {
		return f.current, nil
	}
	c, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil && f.current == nil {
		return nil, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("read the server's certificate: %w", err),
			Remedy: "pass files in PEM, the certificate with those that signed it behind it"}
	}
	if err == nil {
		f.current, f.changed = &c, changed
	}
	return f.current, nil
}

// secured is a listener that speaks TLS.
type secured struct{ net.Listener }

// URL returns the address of a listener of Open. Example: "https://10.0.0.5:8787".
func URL(l net.Listener) string {
	if _, ok := l.(secured); ok {
		return "https://" + l.Addr().String()
	}
	return "http://" + l.Addr().String()
}
