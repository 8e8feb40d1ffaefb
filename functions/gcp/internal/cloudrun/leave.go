package cloudrun

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"

	"cloud.google.com/go/auth/credentials/idtoken"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/gcp"
	"rollout/shared/observe"
)

// maxLeaveRequest bounds the body of a request to leave; a token has some 1,500 bytes.
const maxLeaveRequest = 16 << 10

// issuers are those of Google's identity tokens.
var issuers = []string{"https://accounts.google.com", "accounts.google.com"}

// machine is an instance of Compute Engine, as its identity token names it.
type machine struct {
	ID      string `json:"instance_id"`
	Name    string `json:"instance_name"`
	Project string `json:"project_id"`
}

// MachineTokens checks the identity tokens of machines. It is safe for concurrent use.
type MachineTokens struct {
	// validate checks signature, audience and time of a token.
	validate func(ctx context.Context, token, audience string) (*idtoken.Payload, error)
	audience string
	project  string
	accounts []string // of machines
}

// NewMachineTokens returns a check of the tokens of an installation's machines. It reads
// Google's public keys when it checks the first token.
func NewMachineTokens(c config.Cloud) *MachineTokens {
	return &MachineTokens{validator(keyServer{http.DefaultTransport}), gcp.LeaveAudience(c), c.Project,
		[]string{gcp.LeaveAccount(c), gcp.TrainerAccount(c)}}
}

// validator returns a check of tokens with the public keys that come through the transport.
// The library panics on some malformed tokens: that is an error of the token.
func validator(keys http.RoundTripper) func(ctx context.Context, token, audience string) (*idtoken.Payload, error) {
	v, broken := idtoken.NewValidator(&idtoken.ValidatorOptions{Client: &http.Client{Transport: keys}})
	return func(ctx context.Context, token, audience string) (payload *idtoken.Payload, err error) {
		if broken != nil {
			return nil, broken
		}
		defer func() {
			if p := recover(); p != nil {
				payload, err = nil, fault.New(fault.Denied, "the token is malformed: %v", p)
			}
		}()
		return v.Validate(ctx, token, audience)
	}
}

// keyServer makes failures of the server of public keys errors of the network, which the
// library does not tell from tokens that are not valid.
type keyServer struct{ http.RoundTripper }

// RoundTrip sends the request; see http.RoundTripper.
func (s keyServer) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.RoundTripper.RoundTrip(r)
	if err == nil && answer.StatusCode >= http.StatusInternalServerError {
		answer.Body.Close()
		return nil, fault.New(fault.Unavailable, "the server of public keys answers %s", answer.Status)
	}
	return answer, err
}

// check returns the machine that a token names. A token that Google did not sign, for
// another audience, of another account or project, or of no machine, is Denied.
func (t *MachineTokens) check(ctx context.Context, token string) (machine, error) {
	payload, err := t.validate(ctx, token, t.audience)
	var network net.Error
	if errors.As(err, &network) {
		return machine{}, fault.WithKind(fault.Unavailable, err, "read Google's public keys")
	}
	if err != nil {
		return machine{}, fault.WithKind(fault.Denied, err, "check the machine's identity token")
	}
	text, err := json.Marshal(payload.Claims)
	if err != nil {
		return machine{}, fault.WithKind(fault.Denied, err, "read the claims of the token")
	}
	var claims struct {
		Email    string `json:"email"`
		Verified bool   `json:"email_verified"`
		Google   struct {
			Machine machine `json:"compute_engine"`
		} `json:"google"`
	}
	if err := json.Unmarshal(text, &claims); err != nil {
		return machine{}, fault.WithKind(fault.Denied, err, "read the claims of the token")
	}
	m := claims.Google.Machine
	switch {
	case !slices.Contains(issuers, payload.Issuer):
		err = fault.New(fault.Denied, "the token's issuer is %.80q", payload.Issuer)
	case !claims.Verified || !slices.Contains(t.accounts, claims.Email):
		err = fault.New(fault.Denied, "the token is of the account %.80q, not of one of machines: %q", claims.Email,
			t.accounts)
	case m.Project != t.project:
		err = fault.New(fault.Denied, "the token is of a machine of the project %.80q, not %q", m.Project, t.project)
	case !instanceID.MatchString(m.ID):
		err = fault.New(fault.Denied, "the token names the instance %.64q, which is not an instance id", m.ID)
	}
	return m, err
}

// Leave returns the service by which machines leave their groups. Each request proves by
// its token which machine it is about: itself. remove removes the instance of that id
// from its group; NotFound says that no group has it.
func Leave(log *slog.Logger, tokens *MachineTokens,
	remove func(ctx context.Context, id, name string) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request gcp.LeaveRequest
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLeaveRequest))
		if err == nil {
			err = json.Unmarshal(body, &request)
		}
		if err != nil {
			refuse(w, r, log, http.StatusForbidden, fault.WithKind(fault.Denied, err, "read the request to leave"))
			return
		}
		m, err := tokens.check(r.Context(), request.Token)
		if fault.Is(err, fault.Denied) {
			refuse(w, r, log, http.StatusForbidden, err)
			return
		}
		if err == nil {
			err = remove(r.Context(), m.ID, m.Name)
		}
		log := log.With("instance", m.ID, "name", m.Name)
		switch {
		case err == nil:
			log.InfoContext(r.Context(), "the machine leaves its group")
			w.WriteHeader(http.StatusNoContent)
		case fault.Is(err, fault.NotFound):
			log.InfoContext(r.Context(), "the machine is in no group", observe.KeyError, err)
			http.Error(w, "no group of the installation has this machine", http.StatusNotFound)
		default:
			log.WarnContext(r.Context(), "the machine can't be removed", observe.KeyError, err)
			http.Error(w, "not done", http.StatusServiceUnavailable)
		}
	})
}
