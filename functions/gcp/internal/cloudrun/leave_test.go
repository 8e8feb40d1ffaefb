package cloudrun

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"cloud.google.com/go/auth/credentials/idtoken"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/gcp"
)

// installation is the [cloud] of the machines' installation.
var installation = config.Cloud{Name: "rollout", Project: "acme-ml"}

// claimsOf are those of the identity token of a machine of the installation, with changes.
func claimsOf(changes map[string]any) map[string]any {
	claims := map[string]any{
		"iss": "https://accounts.google.com", "email": gcp.LeaveAccount(installation), "email_verified": true,
		"google": map[string]any{"compute_engine": map[string]any{
			"instance_id": "1844", "instance_name": "rollout-small-g2-x1c2", "project_id": "acme-ml",
		}},
	}
	maps.Copy(claims, changes)
	return claims
}

// leave sends a request to leave with the body, to a service whose Google says that every
// token has the claims, or fails to. It returns the status and the machines removed.
func leave(t *testing.T, body string, claims map[string]any, broken, removal error) (status int, removed []string) {
	t.Helper()
	tokens := NewMachineTokens(installation)
	tokens.validate = func(_ context.Context, token, audience string) (*idtoken.Payload, error) {
		if token != "good" || audience != "https://rollout-leave.acme-ml.internal" {
			return nil, errors.New("idtoken: it is not signed")
		}
		issuer, _ := claims["iss"].(string)
		return &idtoken.Payload{Issuer: issuer, Claims: claims}, broken
	}
	remove := func(_ context.Context, id, name string) error {
		removed = append(removed, id+" "+name)
		return removal
	}
	w := httptest.NewRecorder()
	Leave(slog.New(slog.DiscardHandler), tokens, remove).
		ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
	return w.Code, removed
}

// request is the body of a request with a token.
func request(t *testing.T, token string) string {
	t.Helper()
	body, err := json.Marshal(gcp.LeaveRequest{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestMachineRemovesItselfAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		removal error
		want    int
	}{
		"it leaves":         {nil, http.StatusNoContent},
		"it is in no group": {fault.New(fault.NotFound, "no group has it"), http.StatusNotFound},
		"not now":           {fault.New(fault.Unavailable, "Compute Engine is down"), http.StatusServiceUnavailable},
	} {
		status, removed := leave(t, request(t, "good"), claimsOf(nil), nil, c.removal)
		if status != c.want || len(removed) != 1 || removed[0] != "1844 rollout-small-g2-x1c2" {
			t.Errorf("%s: answered %d, removed %v, want %d", name, status, removed, c.want)
		}
	}
}

// Machines of a training pool have an account of their own.
func TestMachineThatTrainsRemovesItself(t *testing.T) {
	t.Parallel()
	claims := claimsOf(map[string]any{"email": gcp.TrainerAccount(installation)})
	status, removed := leave(t, request(t, "good"), claims, nil, nil)
	if status != http.StatusNoContent || len(removed) != 1 {
		t.Errorf("answered %d, removed %v", status, removed)
	}
}

// roundTrip answers requests for public keys.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// What the library makes of tokens and of the server of public keys: a machine whose token
// could not be checked tries again, and a malformed token is refused.
func TestTokensAreCheckedByTheLibrary(t *testing.T) {
	t.Parallel()
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	claims := part(`{"aud":"https://rollout-leave.acme-ml.internal","exp":99999999999}`)
	signed := part(`{"alg":"RS256","kid":"k"}`) + "." + claims + "." + part("signature")
	curve := part(`{"alg":"ES256","kid":"k"}`)
	for name, c := range map[string]struct {
		token  string
		status int // of the server of keys
		want   fault.Kind
	}{
		"keys are down":     {signed, http.StatusBadGateway, fault.Unavailable},
		"an unknown key":    {signed, http.StatusOK, fault.Denied},
		"no object":         {part("null") + "." + part("null") + ".", http.StatusOK, fault.Denied},
		"a short signature": {curve + "." + claims + "." + part("s"), http.StatusOK, fault.Denied},
		"no token":          {"x", http.StatusOK, fault.Denied},
	} {
		tokens := NewMachineTokens(installation)
		tokens.validate = validator(keyServer{roundTrip(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: c.status, Status: http.StatusText(c.status), Header: http.Header{},
				Body: io.NopCloser(strings.NewReader(`{"keys":[]}`))}, nil
		})})
		if _, err := tokens.check(t.Context(), c.token); !fault.Is(err, c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func TestOthersRemoveNoMachine(t *testing.T) {
	t.Parallel()
	of := func(id, project string) map[string]any {
		return map[string]any{"google": map[string]any{"compute_engine": map[string]any{
			"instance_id": id, "instance_name": "rollout-small-g2-x1c2", "project_id": project}}}
	}
	for name, c := range map[string]struct {
		body   string
		claims map[string]any
		broken error
		want   int
	}{
		"no body":               {"", nil, nil, http.StatusForbidden},
		"a large body":          {`{"token":"` + strings.Repeat("x", 20<<10) + `"}`, nil, nil, http.StatusForbidden},
		"no token":              {"{}", nil, nil, http.StatusForbidden},
		"an unsigned token":     {request(t, "bad"), nil, nil, http.StatusForbidden},
		"another issuer":        {request(t, "good"), map[string]any{"iss": "https://a.example"}, nil, http.StatusForbidden},
		"another account":       {request(t, "good"), map[string]any{"email": "me@acme.com"}, nil, http.StatusForbidden},
		"an unverified account": {request(t, "good"), map[string]any{"email_verified": false}, nil, http.StatusForbidden},
		"not a machine":         {request(t, "good"), map[string]any{"google": nil}, nil, http.StatusForbidden},
		"another project":       {request(t, "good"), of("1844", "evil-ml"), nil, http.StatusForbidden},
		"a name for an id":      {request(t, "good"), of("vm-1", "acme-ml"), nil, http.StatusForbidden},
		"no public keys":        {request(t, "good"), nil, &net.DNSError{Err: "down"}, http.StatusServiceUnavailable},
	} {
		status, removed := leave(t, c.body, claimsOf(c.claims), c.broken, nil)
		if status != c.want || len(removed) > 0 {
			t.Errorf("%s: answered %d, removed %v, want %d", name, status, removed, c.want)
		}
	}
}
