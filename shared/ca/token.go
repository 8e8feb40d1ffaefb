package ca

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"

	"rollout/shared/fault"
	"rollout/shared/secret"
)

// Token lets a worker join: it proves the worker to the server by a secret, and the server to
// the worker by the fingerprint of its authority.
type Token struct {
	Fingerprint [sha256.Size]byte
	Secret      secret.Value
}

// tokenPrefix begins the text of a token: what it is, and the version of its form.
const tokenPrefix = "rollout-join-1."

// NewToken returns a token of the authority with a new random secret.
func (a *Authority) NewToken() Token {
	return Token{Fingerprint: a.Fingerprint(), Secret: secret.NewValue(rand.Text())}
}

// Reveal returns the text of the token, for people to hand on.
func (t Token) Reveal() string {
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(t.Fingerprint[:]) + "." + t.Secret.Reveal()
}

// SecretID returns the name under which the secret may be kept: its SHA-256, from which it can't
// be found.
func SecretID(secretText string) string {
	sum := sha256.Sum256([]byte(secretText))
	return hex.EncodeToString(sum[:])
}

// maxSecret bounds the secret of a token, in bytes.
const maxSecret = 128

// ParseToken reads what Reveal returned. Another text is Invalid; the error does not show it.
func ParseToken(text string) (t Token, err error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), tokenPrefix)
	fingerprint, secretText, found := strings.Cut(rest, ".")
	sum, decodeErr := base64.RawURLEncoding.DecodeString(fingerprint)
	if !ok || !found || decodeErr != nil || len(sum) != sha256.Size || secretText == "" || len(secretText) > maxSecret ||
		strings.Trim(secretText, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" {
		return t, &fault.Error{Kind: fault.Invalid, Err: fault.New(fault.Invalid, "it is not a join token"),
			Remedy: "give the whole text that `rollout join-token` has printed, which begins with " + tokenPrefix}
	}
	copy(t.Fingerprint[:], sum)
	t.Secret = secret.NewValue(secretText)
	return t, nil
}
