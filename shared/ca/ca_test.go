package ca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/shared/clock"
	"rollout/shared/fault"
)

func open(t *testing.T, dir string) (*Authority, bool) {
	t.Helper()
	a, created, err := Open(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a, created
}

// request returns a key and a request for a certificate of it.
func request(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func TestAuthorityIsMadeOnceByManyProcesses(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "installation", "tls")
	var mu sync.Mutex
	makers, prints := 0, map[[32]byte]bool{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			a, created, err := Open(dir, time.Now())
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			prints[a.Fingerprint()] = true
			if created {
				makers++
			}
		})
	}
	all.Wait()
	if makers != 1 || len(prints) != 1 {
		t.Errorf("%d made it, with %d fingerprints, want one of each", makers, len(prints))
	}
	info, err := os.Stat(filepath.Join(dir, keyFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key has mode %v (%v), want 0600", info.Mode(), err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), ".tls-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v is left behind (%v)", left, err)
	}
}

func TestDamagedAuthorityIsCorrupt(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(dir string) error{
		"certificate is text": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, CertificateFile), []byte("x"), 0o644)
		},
		"key is of another": func(dir string) error {
			_, _, err := Open(dir+"2", time.Now())
			if err != nil {
				return err
			}
			return os.Rename(filepath.Join(dir+"2", keyFile), filepath.Join(dir, keyFile))
		},
	} {
		dir := filepath.Join(t.TempDir(), "tls")
		open(t, dir)
		if err := damage(dir); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Open(dir, time.Now()); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: got %v, want Corrupt", name, err)
		}
	}
	dir := filepath.Join(t.TempDir(), "tls")
	open(t, dir)
	if err := os.Remove(filepath.Join(dir, keyFile)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(dir, time.Now()); !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), keyFile) {
		t.Errorf("an authority without its key: %v, want Corrupt", err)
	}
}

func TestClientIsVerified(t *testing.T) {
	t.Parallel()
	a, _ := open(t, filepath.Join(t.TempDir(), "tls"))
	other, _ := open(t, filepath.Join(t.TempDir(), "tls"))
	now := time.Now()
	sign := func(by *Authority) *x509.Certificate {
		der, until, err := by.SignClient(request(t), "worker-1", now)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil || !cert.NotAfter.Equal(until) {
			t.Fatalf("it ends at %v, want %v (%v)", cert.NotAfter, until, err)
		}
		return cert
	}
	own := sign(a)
	if id, err := a.VerifyClient(own, now); err != nil || id != "worker-1" {
		t.Errorf("got %q (%v)", id, err)
	}
	server, err := a.newServer(nil, now)
	if err != nil {
		t.Fatal(err)
	}
	ofServer, err := x509.ParseCertificate(server.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cert *x509.Certificate
		at   time.Time
		say  string
	}{
		"of another authority":           {sign(other), now, "not of this installation's authority"},
		"that has ended":                 {own, now.Add(ClientLife + time.Second), "is valid from"},
		"that does not hold yet":         {own, now.Add(-time.Hour), "is valid from"},
		"of a server":                    {ofServer, now, "not of this installation's authority"},
		"that is the authority's itself": {a.cert, now, "not of this installation's authority"},
	} {
		if _, err := a.VerifyClient(c.cert, c.at); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("a certificate %s: got %v, want Denied with %q", name, err, c.say)
		}
	}
}

func TestBadRequestForACertificateIsRefused(t *testing.T) {
	t.Parallel()
	a, _ := open(t, filepath.Join(t.TempDir(), "tls"))
	changed := request(t)
	changed[len(changed)-1] ^= 1 // of its signature
	weak, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ofWeak, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, weak)
	if err != nil {
		t.Fatal(err)
	}
	for name, der := range map[string][]byte{"empty": nil, "large": make([]byte, maxRequest+1),
		"noise": []byte("noise"), "signed otherwise": changed,
		"weak": ofWeak} {
		if _, _, err := a.SignClient(der, "x", time.Now()); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: got %v, want Invalid", name, err)
		}
	}
}

// A server proves who it is by its name, and by those of its machine.
func TestServerIsVerifiedByItsNames(t *testing.T) {
	t.Parallel()
	a, _ := open(t, filepath.Join(t.TempDir(), "tls"))
	l, err := tls.Listen("tcp", "127.0.0.1:0", a.ServerConfig(clock.System{}, "rollout.example.com", "192.0.2.7"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*tls.Conn).Handshake()
			_ = c.Close()
		}
	}()
	dial := func(name string) error {
		c, err := tls.DialWithDialer(&net.Dialer{}, "tcp", l.Addr().String(), &tls.Config{RootCAs: a.pool, ServerName: name})
		if err == nil {
			err = c.Close()
		}
		return err
	}
	for _, name := range []string{ServerName, "localhost", "127.0.0.1", "rollout.example.com", "192.0.2.7"} {
		if err := dial(name); err != nil {
			t.Errorf("as %s: %v", name, err)
		}
	}
	if err := dial("other.example.com"); err == nil {
		t.Error("it is accepted under another's name")
	}
}

func TestTokenReadsBack(t *testing.T) {
	t.Parallel()
	a, _ := open(t, filepath.Join(t.TempDir(), "tls"))
	token := a.NewToken()
	got, err := ParseToken("  " + token.Reveal() + "\n")
	if err != nil || got.Fingerprint != a.Fingerprint() || got.Secret.Reveal() != token.Secret.Reveal() {
		t.Errorf("read back as %v (%v)", got, err)
	}
	if text := SecretID(token.Secret.Reveal()); len(text) != 64 || strings.Contains(text, token.Secret.Reveal()) {
		t.Errorf("its id is %q", text)
	}
	for _, bad := range []string{"", "x", token.Reveal()[:30], "rollout-join-2" + token.Reveal()[14:],
		token.Reveal() + "!", token.Reveal() + strings.Repeat("A", 200)} {
		if _, err := ParseToken(bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("ParseToken(%.20q): %v, want Invalid", bad, err)
		} else if strings.Contains(err.Error(), token.Secret.Reveal()) {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
}
