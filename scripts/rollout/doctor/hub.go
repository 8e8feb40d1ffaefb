package doctor

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/poolcheck"
	"rollout/shared/secret"
)

// hubToken is the secret with the machines' token for models of the hub.
const hubToken = "hf-token"

// webLimit bounds the checks of the hub and of registries.
const webLimit = 30 * time.Second

// webTime bounds one of their requests, so that a place that is cut off is told from one
// that refuses.
const webTime = 8 * time.Second

// CheckModelAccess returns the check whether the hub lets the machines of the pools fetch
// their models: gated models need the token of an account that accepted their terms.
func CheckModelAccess(m poolcheck.Models, d config.Deployment, secrets secret.Store) Check {
	h := hub{m, d, secrets}
	return Check{Name: cloud.CheckModelAccess, Limit: webLimit, Remedy: func(error) string { return "" }, Probe: h.check}
}

// hub asks Hugging Face's hub for models as a machine does.
type hub struct {
	models  poolcheck.Models
	at      config.Deployment
	secrets secret.Store
}

func (h hub) check(ctx context.Context) (string, error) {
	var looks cloud.Looks
	var asked []string
	for _, p := range h.at.InferPools() {
		if !poolcheck.OfHub(p) || slices.Contains(asked, p.Model+p.Revision) {
			continue
		}
		asked = append(asked, p.Model+p.Revision)
		if err := looks.Add(h.model(ctx, p)); err != nil {
			return "", err
		}
	}
	return looks.Result("; ")
}

// model asks for the config of a pool's model, first without a token: for an open model
// no secret is read.
func (h hub) model(ctx context.Context, p config.Pool) (string, error) {
	status, reason, err := h.head(ctx, p, "")
	if err != nil {
		return "", err
	}
	if !refused(status) {
		return p.Model + " is open", h.absent(p, status, reason)
	}
	page := strings.TrimSuffix(cmp.Or(h.models.Hub, poolcheck.DefaultHub), "/") + "/" + p.HubName()
	if !slices.Contains(h.at.Secrets, hubToken) {
		return "", &fault.Error{Kind: fault.Denied,
			Err: fault.New(fault.Denied, "pool %s: the hub refuses %s without a token: it is gated, private or absent",
				p.Name, p.Model),
			Remedy: "accept its terms at " + page + ", create the secret " + hubToken + " with a token of that account, and " +
				"name it in secrets.allowlist of [cloud]"}
	}
	token, err := h.secrets.Get(ctx, hubToken)
	switch {
	case fault.Is(err, fault.Denied):
		return "", &cloud.Unseen{Reason: fmt.Sprintf("%s needs the secret %s, which can't be seen with these rights", p.Model,
			hubToken)}
	case err != nil:
		return "", err
	}
	status, reason, err = h.head(ctx, p, token.Reveal())
	switch {
	case err != nil:
		return "", err
	case status == http.StatusUnauthorized:
		return "", &fault.Error{Kind: fault.Denied,
			Err:    fault.New(fault.Denied, "pool %s: the hub does not accept the token in the secret %s", p.Name, hubToken),
			Remedy: "put a valid token with the right to read into the secret"}
	case status == http.StatusForbidden:
		return "", &fault.Error{Kind: fault.Denied,
			Err: fault.New(fault.Denied, "pool %s: the account of the token in the secret %s may not read %s", p.Name,
				hubToken, p.Model),
			Remedy: "ask for access at " + page + " with that account, and let the token read gated models"}
	}
	return p.Model + " is open to " + hubToken, h.absent(p, status, reason)
}

func refused(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// absent returns the error of an answer that is not a success. A model without a config,
// such as one for llama.cpp, is there.
func (h hub) absent(p config.Pool, status int, reason string) error {
	switch {
	case status < http.StatusBadRequest || reason == "EntryNotFound":
		return nil
	case status == http.StatusNotFound:
		return &fault.Error{Kind: fault.NotFound,
			Err:    fault.New(fault.NotFound, "pool %s: the hub has no %s", p.Name, strings.Trim(p.Model+"@"+p.Revision, "@")),
			Remedy: "correct model or revision of the pool"}
	}
	return &cloud.Unseen{Reason: fmt.Sprintf("the hub answered %d", status)}
}

// head asks for the config of a model and returns the hub's status, and its word for a
// refusal.
func (h hub) head(ctx context.Context, p config.Pool, token string) (status int, reason string, err error) {
	ctx, cancel := context.WithTimeout(ctx, webTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, h.models.ConfigURL(p), nil)
	if err != nil {
		return 0, "", fault.WithKind(fault.Invalid, err, "ask the hub")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := clientOr(h.models.Client).Do(r)
	if err != nil {
		return 0, "", &cloud.Unseen{Reason: "the hub can't be reached from here (" + cause(err) + ")"}
	}
	_ = answer.Body.Close() // it has none
	return answer.StatusCode, answer.Header.Get("X-Error-Code"), nil
}
