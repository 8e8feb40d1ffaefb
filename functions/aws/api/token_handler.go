package main

import (
	"context"
	"log/slog"
	"net/http"
	"sync"

	"rollout/functions/api"
	"rollout/shared/fault"
	"rollout/shared/listen"
	"rollout/shared/observe"
	"rollout/shared/observe/probes"
	"rollout/shared/secret"
)

// tokenHandler is the API that demands its token, which it reads for the first
// request and keeps: a cold start that waits for no other service is over
// sooner, and a token that can't be read lets nobody in.
type tokenHandler struct {
	secrets secret.Store
	log     *slog.Logger
	service *api.Service
	probes  probes.Probes

	mu   sync.Mutex
	next http.Handler // nil until the token is known
}

func (d *tokenHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	next, err := d.handler(r.Context())
	if err != nil {
		d.log.ErrorContext(r.Context(), "the API answers nobody", observe.KeyError, err)
		listen.WriteError(w, http.StatusServiceUnavailable, fault.Unavailable.String(), "the API can't read its token: its log says why")
		return
	}
	next.ServeHTTP(w, r)
}

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
		return nil, fault.New(fault.Invalid, "the secret %s is empty: the API would be open to everybody", listen.TokenSecret)
	}
	d.next = d.service.Handler(token, d.probes)
	return d.next, nil
}
