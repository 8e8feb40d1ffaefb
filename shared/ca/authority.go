package ca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"rollout/shared/fault"
)

// Names of the authority's files, in its folder.
const (
	CertificateFile = "ca.pem"
	keyFile         = "ca.key.pem"
)

// authorityLife is how long the authority's certificate is valid, and backdate how long before
// it is made a certificate begins to be: the clocks of machines differ.
const (
	authorityLife = 10 * 365 * 24 * time.Hour
	backdate      = 5 * time.Minute
)

// Authority signs certificates. It is safe for concurrent use.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

// Open reads the authority in the folder dir, or makes one there if the folder does not exist;
// created then is true. Several processes may open it at once. Files that can't be read as an
// authority are Corrupt.
func Open(dir string, now time.Time) (a *Authority, created bool, err error) {
	a, err = load(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return a, false, err
	}
	if _, statErr := os.Stat(dir); statErr == nil {
		// Another process may have made it since: its folder appears whole.
		if a, err = load(dir); !errors.Is(err, fs.ErrNotExist) {
			return a, false, err
		}
		return nil, false, &fault.Error{Kind: fault.Corrupt, Err: err,
			Remedy: "restore the file, or remove the folder " + dir + "; workers must then join again"}
	}
	if created, err = create(dir, now); err != nil {
		return nil, false, err
	}
	a, err = load(dir)
	return a, created, err
}

// Certificate returns the authority's certificate, DER. The caller must not change it.
func (a *Authority) Certificate() []byte { return a.cert.Raw }

// Fingerprint returns the SHA-256 of the authority's certificate.
func (a *Authority) Fingerprint() [sha256.Size]byte { return sha256.Sum256(a.cert.Raw) }

// create makes an authority and moves its folder into place whole. It returns false if another
// process was faster.
func create(dir string, now time.Time) (bool, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return false, fault.WithKind(fault.Internal, err, "make the key of a certificate authority")
	}
	host, _ := os.Hostname() // the name is for people
	serial, err := newSerial()
	if err != nil {
		return false, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{Organization: []string{"rollout"}, CommonName: "rollout on " + host},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(authorityLife),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return false, fault.WithKind(fault.Internal, err, "make a certificate authority")
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return false, fault.WithKind(fault.Internal, err, "encode the key of a certificate authority")
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return false, fault.WithKind(fault.Invalid, err, "make the folder of the certificate authority")
	}
	whole, err := os.MkdirTemp(parent, ".tls-") // for the owner alone
	if err != nil {
		return false, fault.WithKind(fault.Invalid, err, "make the folder of the certificate authority")
	}
	defer os.RemoveAll(whole) // it has moved, unless something failed
	err = errors.Join(writeSynced(filepath.Join(whole, CertificateFile), "CERTIFICATE", cert, 0o644),
		writeSynced(filepath.Join(whole, keyFile), "PRIVATE KEY", pkcs8, 0o600), os.Chmod(whole, 0o755))
	if err == nil {
		err = os.Rename(whole, dir)
	}
	if _, loadErr := load(dir); err != nil && loadErr == nil {
		return false, nil
	}
	return err == nil, fault.WithKind(fault.Invalid, err, "write the certificate authority to %s", dir)
}

func writeSynced(path, kind string, der []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	err = pem.Encode(f, &pem.Block{Type: kind, Bytes: der})
	return errors.Join(err, f.Sync(), f.Close())
}

// load reads the authority in the folder. An error of a folder without one matches
// fs.ErrNotExist.
func load(dir string) (*Authority, error) {
	certDER, err := readPEM(filepath.Join(dir, CertificateFile), "CERTIFICATE")
	if err != nil {
		return nil, err
	}
	keyDER, err := readPEM(filepath.Join(dir, keyFile), "PRIVATE KEY")
	if err != nil {
		return nil, err
	}
	damaged := func(name string, err error) error {
		return &fault.Error{Kind: fault.Corrupt, Err: fmt.Errorf("%s: %w", filepath.Join(dir, name), err),
			Remedy: "restore the file, or remove the folder " + dir + "; workers must then join again"}
	}
	cert, err := x509.ParseCertificate(certDER)
	if err != nil {
		return nil, damaged(CertificateFile, err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(keyDER)
	if err != nil {
		return nil, damaged(keyFile, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, damaged(keyFile, fmt.Errorf("a key of the kind %T", parsed))
	}
	if !key.PublicKey.Equal(cert.PublicKey) || !cert.IsCA {
		return nil, damaged(keyFile, errors.New("it is not the key of "+CertificateFile))
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &Authority{cert: cert, key: key, pool: pool}, nil
}

// maxPEM bounds the size of a file with a certificate or a key.
const maxPEM = 64 << 10

// readPEM reads the first block of a file, which must be of the kind.
func readPEM(path, kind string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxPEM {
		return nil, fault.New(fault.Corrupt, "%s has %d bytes, which is no certificate and no key", path, info.Size())
	}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault.WithKind(fault.NotFound, err, "read the certificate authority")
	case err != nil:
		return nil, fault.WithKind(fault.Denied, err, "read the certificate authority")
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != kind {
		return nil, fault.New(fault.Corrupt, "%s has no %s in PEM", path, kind)
	}
	return block.Bytes, nil
}

// newSerial returns a random serial number of 127 bits.
func newSerial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	return n, fault.WithKind(fault.Internal, err, "make a serial number")
}
