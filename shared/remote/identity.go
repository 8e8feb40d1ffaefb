package remote

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"rollout/shared/fault"
)

// identity is who a worker is: a key, its certificate, and the authority that signed it.
type identity struct {
	key       *ecdsa.PrivateKey
	cert      *x509.Certificate
	authority *x509.Certificate
	token     string // ca.SecretID of the token with which it was given
}

// tokenHeader is the PEM header of the key that holds identity.token.
const tokenHeader = "Token"

// identityFile is the file with an identity, in its folder: one file, so that its parts are of
// one piece whatever ends the process.
const identityFile = "worker.pem"

// readIdentity reads the identity in the folder; nil if there is none. A damaged file is Corrupt.
func readIdentity(dir string) (*identity, error) {
	path := filepath.Join(dir, identityFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.WithKind(fault.Denied, err, "read the worker's certificate")
	}
	id, err := parseIdentity(text)
	if err != nil {
		return nil, &fault.Error{Kind: fault.Corrupt, Err: fmt.Errorf("%s: %w", path, err),
			Remedy: "remove it, and start the worker with a new token of `rollout join-token`"}
	}
	return id, nil
}

func parseIdentity(text []byte) (*identity, error) {
	var blocks [][]byte
	token := ""
	for rest := text; ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		blocks, token = append(blocks, b.Bytes), cmp.Or(token, b.Headers[tokenHeader])
	}
	if len(blocks) != 3 {
		return nil, fmt.Errorf("%d parts in PEM, want a key and two certificates", len(blocks))
	}
	parsed, err := x509.ParsePKCS8PrivateKey(blocks[0])
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("a key of the kind %T", parsed)
	}
	id, err := newIdentity(key, blocks[1], blocks[2])
	if err != nil {
		return nil, err
	}
	id.token = token
	return id, nil
}

// newIdentity returns the identity with certificates in DER. The first must be for the key.
func newIdentity(key *ecdsa.PrivateKey, cert, authority []byte) (*identity, error) {
	id := &identity{key: key}
	var err error
	if id.cert, err = x509.ParseCertificate(cert); err != nil {
		return nil, err
	}
	if id.authority, err = x509.ParseCertificate(authority); err != nil {
		return nil, err
	}
	if !key.PublicKey.Equal(id.cert.PublicKey) {
		return nil, errors.New("the certificate is for another key")
	}
	return id, id.cert.CheckSignatureFrom(id.authority)
}

// write puts the identity into the folder, which only this user may read.
func (id *identity) write(dir string) error {
	key, err := x509.MarshalPKCS8PrivateKey(id.key)
	if err != nil {
		return fault.WithKind(fault.Internal, err, "encode the worker's key")
	}
	var text bytes.Buffer
	for _, b := range []pem.Block{
		{Type: "PRIVATE KEY", Bytes: key, Headers: map[string]string{tokenHeader: id.token}},
		{Type: "CERTIFICATE", Bytes: id.cert.Raw},
		{Type: "CERTIFICATE", Bytes: id.authority.Raw}} {
		if err := pem.Encode(&text, &b); err != nil {
			return fault.WithKind(fault.Internal, err, "encode the worker's certificate")
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fault.WithKind(fault.Invalid, err, "keep the worker's certificate")
	}
	f, err := os.CreateTemp(dir, identityFile+".*") // for the owner alone
	if err != nil {
		return fault.WithKind(fault.Invalid, err, "keep the worker's certificate")
	}
	_, err = f.Write(text.Bytes())
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, identityFile))
	}
	if err != nil {
		_ = os.Remove(f.Name()) // it is incomplete
	}
	return fault.WithKind(fault.Invalid, err, "keep the worker's certificate in %s", dir)
}

// certificate returns what a TLS connection shows.
func (id *identity) certificate() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{id.cert.Raw}, PrivateKey: id.key, Leaf: id.cert}
}

// validAt reports whether the certificate may be shown.
func (id *identity) validAt(now time.Time) bool { return now.Before(id.cert.NotAfter) }

// newRequest makes a key and a request for a certificate of it, DER.
func newRequest() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fault.WithKind(fault.Internal, err, "make the worker's key")
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	return key, request, fault.WithKind(fault.Internal, err, "make a request for a certificate")
}
