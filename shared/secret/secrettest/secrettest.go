// Package secrettest is the conformance suite of the secret port. Every driver
// must pass it, against the real store or an emulator. Only tests import it.
package secrettest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"rollout/shared/fault"
	"rollout/shared/secret"
)

// Run tests the driver. Each call of open returns a new store with the allowlist
// allow, and sets the secrets of set, by name, in its backend.
func Run(t *testing.T, open func(t *testing.T, allow []string, set map[string]string) secret.Store) {
	const text = "s3cr3t-+/= \t'\"é"
	t.Run("an allowed secret is returned unchanged", func(t *testing.T) {
		t.Parallel()
		s := open(t, []string{"hf-token", "other"}, map[string]string{"hf-token": text})
		v, err := s.Get(t.Context(), "hf-token")
		if err != nil || v.Reveal() != text {
			t.Errorf("Get = %q, %v, want %q", v.Reveal(), err, text)
		}
		if out := fmt.Sprintf("%v %+v %#v %s %q", v, v, v, v, v); strings.Contains(out, "s3cr3t") {
			t.Errorf("the value prints its text: %s", out)
		}
	})
	t.Run("a name outside the allowlist is Denied with the name, set or unset", func(t *testing.T) {
		t.Parallel()
		s := open(t, []string{"hf-token"}, map[string]string{"other-key": text})
		for _, name := range []string{"other-key", "unset"} {
			v, err := s.Get(t.Context(), name)
			if !fault.Is(err, fault.Denied) || v.Reveal() != "" {
				t.Errorf("Get(%q) = %q, %v, want Denied", name, v.Reveal(), err)
				continue
			}
			if !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("want a message with the name %s and without the secret, got %v", name, err)
			}
		}
	})
	t.Run("an empty allowlist denies everything", func(t *testing.T) {
		t.Parallel()
		s := open(t, nil, map[string]string{"hf-token": text})
		if _, err := s.Get(t.Context(), "hf-token"); !fault.Is(err, fault.Denied) {
			t.Errorf("Get = %v, want Denied", err)
		}
	})
	t.Run("an allowed but unset secret is NotFound and not retriable", func(t *testing.T) {
		t.Parallel()
		s := open(t, []string{"hf-token"}, nil)
		_, err := s.Get(t.Context(), "hf-token")
		if !fault.Is(err, fault.NotFound) || fault.Retriable(err) || !strings.Contains(err.Error(), "hf-token") {
			t.Errorf("Get = %v, want NotFound that names it", err)
		}
	})
	t.Run("an invalid name is refused", func(t *testing.T) {
		t.Parallel()
		s := open(t, []string{"hf-token"}, map[string]string{"hf-token": text})
		for _, name := range []string{
			"", "HF-TOKEN", "hf_token", "../hf-token", "hf-token\x00", "hf-token/latest", strings.Repeat("a", 65),
		} {
			if _, err := s.Get(t.Context(), name); !fault.Is(err, fault.Invalid) {
				t.Errorf("Get(%q) = %v, want Invalid", name, err)
			}
		}
	})
	t.Run("a canceled context is Canceled", func(t *testing.T) {
		t.Parallel()
		s := open(t, []string{"hf-token"}, map[string]string{"hf-token": text})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Get(ctx, "hf-token"); !fault.Is(err, fault.Canceled) {
			t.Errorf("Get = %v, want Canceled", err)
		}
	})
	t.Run("concurrent reads succeed", func(t *testing.T) {
		t.Parallel()
		s := open(t, []string{"hf-token"}, map[string]string{"hf-token": text})
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if v, err := s.Get(t.Context(), "hf-token"); err != nil || v.Reveal() != text {
					t.Errorf("Get = %q, %v", v.Reveal(), err)
				}
			})
		}
		all.Wait()
	})
}
