package fakemetadata

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

var instance = Instance{ID: "4520031799277581759", Name: "n", Zone: "europe-west4-a", Project: "acme-ml",
	Number: "123456789012", Account: "worker@acme-ml.iam.gserviceaccount.com"}

// start serves the metadata and returns the address before the paths.
func start(t *testing.T) (*Server, *Signer, string) {
	t.Helper()
	signer, err := NewSigner()
	if err != nil {
		t.Fatal(err)
	}
	s, host, end, err := Start(instance, signer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	return s, signer, "http://" + host + "/computeMetadata/v1/"
}

// get returns the status, the content and the ETag of an address.
func get(ctx context.Context, t *testing.T, address string) (status int, content, etag string) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Error(err)
		return 0, "", ""
	}
	r.Header.Set("Metadata-Flavor", "Google")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", ""
	}
	defer answer.Body.Close() // opened for reading
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.Header.Get("Metadata-Flavor") != "Google" {
		t.Errorf("%s: %v, %v", address, answer.Header, err)
	}
	return answer.StatusCode, string(body), answer.Header.Get("ETag")
}

func TestValues(t *testing.T) {
	t.Parallel()
	s, _, base := start(t)
	for path, want := range map[string]string{
		"instance/id": instance.ID, "project/project-id": "acme-ml", "instance/preempted": "FALSE",
		"instance/maintenance-event": "NONE", "instance/zone": "projects/123456789012/zones/europe-west4-a",
	} {
		if status, content, _ := get(t.Context(), t, base+path); status != 200 || content != want {
			t.Errorf("%s: %d %q, want %q", path, status, content, want)
		}
	}
	if status, _, _ := get(t.Context(), t, base+"instance/none"); status != 404 {
		t.Errorf("an unknown path: %d, want 404", status)
	}
	answer, err := http.Get(base + "instance/id")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close() // it is not used
	if answer.StatusCode != 403 || s.Refused() != 1 {
		t.Errorf("without the header: %d, %d refused", answer.StatusCode, s.Refused())
	}
}

// A poll with the last ETag waits for a change, one with an older ETag does not.
func TestLongPoll(t *testing.T) {
	t.Parallel()
	s, _, base := start(t)
	const path = "instance/preempted"
	poll := func(etag string) string {
		return base + path + "?wait_for_change=true&last_etag=" + url.QueryEscape(etag)
	}
	_, _, first := get(t.Context(), t, base+path)
	answered := make(chan string)
	go func() {
		_, content, _ := get(t.Context(), t, poll(first))
		answered <- content
	}()
	s.Maintain("NONE") // of another path
	s.Preempt()
	if got := <-answered; got != "TRUE" {
		t.Errorf("the poll was answered with %q", got)
	}
	if _, got, etag := get(t.Context(), t, poll(first)); got != "TRUE" || etag == first {
		t.Errorf("an old ETag: %q with the ETag %s", got, etag)
	}
	_, _, last := get(t.Context(), t, base+path)
	if _, got, _ := get(t.Context(), t, poll(last)+"&timeout_sec=0"); got != "TRUE" {
		t.Errorf("after the time limit: %q", got)
	}
}

// An identity token in full names the machine; the public key proves who signed it.
func TestIdentityToken(t *testing.T) {
	t.Parallel()
	_, signer, base := start(t)
	const identity = "instance/service-accounts/default/identity"
	if status, _, _ := get(t.Context(), t, base+identity); status != 400 {
		t.Errorf("without an audience: %d, want 400", status)
	}
	for _, full := range []bool{false, true} {
		address := base + identity + "?audience=" + url.QueryEscape("https://f.run.app/")
		if full {
			address += "&format=full"
		}
		_, token, _ := get(t.Context(), t, address)
		claims := verify(t, signer, token)
		if claims["aud"] != "https://f.run.app/" || claims["email"] != instance.Account || claims["iss"] != issuer {
			t.Errorf("the claims are %v", claims)
		}
		google, named := claims["google"].(map[string]any)
		if named != full {
			t.Errorf("full %t: the claims are %v", full, claims)
		}
		if full && google["compute_engine"].(map[string]any)["instance_id"] != instance.ID {
			t.Errorf("the machine is %v", google)
		}
	}
}

// verify checks a token's signature with the published key, and returns its claims.
func verify(t *testing.T, signer *Signer, token string) map[string]any {
	t.Helper()
	published := httptest.NewRecorder()
	signer.ServeHTTP(published, nil)
	var set struct{ Keys []struct{ N, E string } }
	if err := json.Unmarshal(published.Body.Bytes(), &set); err != nil || len(set.Keys) != 1 {
		t.Fatalf("%s: %v", published.Body, err)
	}
	number := func(s string) *big.Int {
		b, err := base64.RawURLEncoding.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return new(big.Int).SetBytes(b)
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("%q is not a token", token)
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	key := &rsa.PublicKey{N: number(set.Keys[0].N), E: int(number(set.Keys[0].E).Int64())}
	if err := rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature); err != nil {
		t.Fatal(err)
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	claims := map[string]any{}
	if err := json.Unmarshal(body, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

// An access token tells an emulator whose it is, and no other token does.
func TestAccessTokensNameTheirAccount(t *testing.T) {
	t.Parallel()
	signer, err := NewSigner()
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewSigner()
	if err != nil {
		t.Fatal(err)
	}
	const account = "rollout-plan@acme-ml.iam.gserviceaccount.com"
	token, err := signer.AccessToken(account)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := signer.AccountOf(token); err != nil || got != account {
		t.Errorf("the token is of %q, %v", got, err)
	}
	foreign, err := other.AccessToken(account)
	if err != nil {
		t.Fatal(err)
	}
	old, err := signer.Sign(Claims{"email": account, "exp": 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, token := range map[string]string{"another signer's": foreign, "an old one": accessPrefix + old,
		"an identity token": strings.TrimPrefix(token, accessPrefix), "none": ""} {
		if got, err := signer.AccountOf(token); err == nil {
			t.Errorf("%s is a token of %q", name, got)
		}
	}
}
