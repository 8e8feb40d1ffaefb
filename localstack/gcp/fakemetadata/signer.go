package fakemetadata

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"math/big"
	"net/http"
	"strings"
	"time"
)

const (
	issuer   = "https://accounts.google.com"
	lifetime = time.Hour
	keyID    = "emulator"
	keyBits  = 2048
)

// Claims are what an identity token says.
type Claims map[string]any

// Signer signs identity tokens as Google does, with a key of its own. It is a handler
// that serves the public key in the format of www.googleapis.com/oauth2/v3/certs. It is
// safe for concurrent use.
type Signer struct{ key *rsa.PrivateKey }

// NewSigner returns a signer with a new key.
func NewSigner() (*Signer, error) {
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	return &Signer{key}, err
}

// Sign returns an identity token with the claims, and the issuer and times where claims
// have none.
func (s *Signer) Sign(claims Claims) (string, error) {
	now := time.Now()
	all := Claims{"iss": issuer, "iat": now.Unix(), "exp": now.Add(lifetime).Unix()}
	maps.Copy(all, claims)
	header, err := json.Marshal(map[string]string{"alg": "RS256", "kid": keyID, "typ": "JWT"})
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(all)
	if err != nil {
		return "", err
	}
	signed := base64.RawURLEncoding.EncodeToString(header) + "." + base64.RawURLEncoding.EncodeToString(body)
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, s.key, crypto.SHA256, sum[:])
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature), err
}

// Verify returns the claims of a token that Sign returned, unless it has expired.
func (s *Signer) Verify(token string) (Claims, error) {
	signed, encoded, _ := lastCut(token, ".")
	_, body, _ := strings.Cut(signed, ".")
	signature, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(signed))
	if err := rsa.VerifyPKCS1v15(&s.key.PublicKey, crypto.SHA256, sum[:], signature); err != nil {
		return nil, err
	}
	text, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		return nil, err
	}
	var claims Claims
	if err := json.Unmarshal(text, &claims); err != nil {
		return nil, err
	}
	if exp, _ := claims["exp"].(float64); time.Now().Unix() > int64(exp) {
		return nil, errors.New("the token has expired")
	}
	return claims, nil
}

// lastCut is strings.Cut at the last separator.
func lastCut(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}

// accessPrefix begins access tokens.
const accessPrefix = "ya29."

// AccessToken returns an access token of an account. Google's say nothing to others; these
// name the account, so that emulators know the caller.
func (s *Signer) AccessToken(account string) (string, error) {
	token, err := s.Sign(Claims{"email": account})
	return accessPrefix + token, err
}

// AccountOf returns the account of an access token.
func (s *Signer) AccountOf(accessToken string) (string, error) {
	token, ok := strings.CutPrefix(accessToken, accessPrefix)
	if !ok {
		return "", errors.New("it is not an access token")
	}
	claims, err := s.Verify(token)
	account, _ := claims["email"].(string)
	return account, err
}

// ServeHTTP answers with the public key; see http.Handler.
func (s *Signer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	encode := base64.RawURLEncoding.EncodeToString
	_ = json.NewEncoder(w).Encode(map[string]any{"keys": []map[string]string{{ // to a client that may have gone
		"kty": "RSA", "alg": "RS256", "use": "sig", "kid": keyID,
		"n": encode(s.key.N.Bytes()), "e": encode(big.NewInt(int64(s.key.E)).Bytes()),
	}}})
}
