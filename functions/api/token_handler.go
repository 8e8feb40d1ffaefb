package api

import (
	"context"
	"log/slog"
	"net/http"
	"sync"

	"rollout/shared/fault"
	"rollout/shared/listen"
	"rollout/shared/observe"
	"rollout/shared/observe/probes"
	"rollout/shared/secret"
)

// TokenHandler returns the API with a required token, the secret listen.TokenSecret.
// It reads the token at the first request, so that a cold start of a function waits
// for no other service, and keeps it. While the token can't be read, it answers every
// request with 503.
func (s *Service) TokenHandler(secrets secret.Store, log *slog.Logger, v probes.Probes, others ...Mount) http.Handler {
	return &tokenHandler{secrets: secrets, log: log, service: s, probes: v, others: others}
}

// tokenHandler is the handler of TokenHandler.
type tokenHandler struct {
	secrets secret.Store
	log     *slog.Logger
	service *Service
	probes  probes.Probes
	others  []Mount

	mu   sync.Mutex
	next http.Handler // nil until the token is read
}

func (d *tokenHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	next, err := d.handler(r.Context())
	if err != nil {
		d.log.ErrorContext(r.Context(), "the API can't read its token and refuses all requests", observe.KeyError, err)
		listen.WriteError(w, http.StatusServiceUnavailable, fault.Unavailable.String(),
			"the API can't read its token: its log says why")
		return
	}
	next.ServeHTTP(w, r)
}

// handler returns the API with its token, which it reads if necessary.
func (d *tokenHandler) handler(ctx context.Context) (http.Handler, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.next != nil {
		return d.next, nil
	}
	token, err := d.secrets.Get(ctx, listen.TokenSecret)
	if err != nil {
		return nil, err
	}
	if token.Reveal() == "" {
		return nil, fault.New(fault.Invalid, "the secret %s is empty: set it, or the API would be open to everyone",
			listen.TokenSecret)
	}
	d.next = d.service.Handler(token, d.probes, d.others...)
	return d.next, nil
}
