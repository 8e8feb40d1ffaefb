package cloudrun

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"

	"rollout/shared/fault"
	"rollout/shared/observe"
)

// checkCaller refuses, as Denied, a request whose identity token is not the
// account's.
//
// It reads the token's claims and does not verify its signature: Cloud Run has done
// so before, and replaces the signature. That holds for services whose callers need
// the role of an invoker, as all services of pushes and timers do.
func checkCaller(r *http.Request, account string) error {
	email, err := callerOf(r)
	switch {
	case err != nil:
		return err
	case account == "" || email != account:
		return fault.New(fault.Denied, "the caller is %.80q, not %q", email, account)
	}
	return nil
}

// callerOf returns the account that a request's identity token names.
func callerOf(r *http.Request) (string, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	parts := strings.Split(token, ".")
	if !ok || len(parts) != 3 {
		return "", fault.New(fault.Denied, "the request has no identity token")
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", fault.WithKind(fault.Denied, err, "read the identity token")
	}
	var claims struct {
		Email    string `json:"email"`
		Verified bool   `json:"email_verified"`
	}
	if err := json.Unmarshal(text, &claims); err != nil {
		return "", fault.WithKind(fault.Denied, err, "read the identity token")
	}
	if !claims.Verified {
		return "", fault.New(fault.Denied, "the identity token's account %.80q is not verified", claims.Email)
	}
	return claims.Email, nil
}

// Timer returns the service that Cloud Scheduler calls with the account's token. It
// ignores the request's body.
func Timer(log *slog.Logger, account string, handle func(context.Context) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkCaller(r, account); err != nil {
			refuse(w, r, log, http.StatusForbidden, err)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), handBack)
		defer cancel()
		if err := handle(ctx); err != nil {
			log.ErrorContext(ctx, "the timer's work failed; its next call tries again", observe.KeyError, err)
			http.Error(w, "not done", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}
