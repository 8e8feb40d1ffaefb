package gcp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"cloud.google.com/go/auth"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"rollout/shared/fault"
)

func TestLoadConfigNeedsProject(t *testing.T) {
	t.Parallel()
	if _, err := LoadConfig(""); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "cloud.project") {
		t.Errorf("got %v", err)
	}
}

// An error of the credentials keeps its kind on its way through gRPC, which decides by its
// status about a retry.
func TestCredentialsErrorHasKindAndStatus(t *testing.T) {
	t.Parallel()
	answered := func(code int) error {
		return &url.Error{Op: "Post", Err: &auth.Error{Response: &http.Response{StatusCode: code}}}
	}
	refused := &net.OpError{Op: "dial", Err: errors.New("refused")}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		kind fault.Kind
		code codes.Code
	}{
		"refused":            {t.Context(), answered(400), fault.Denied, codes.Unauthenticated},
		"not allowed":        {t.Context(), answered(403), fault.Denied, codes.Unauthenticated},
		"service fails":      {t.Context(), answered(500), fault.Unavailable, codes.Unavailable},
		"service throttles":  {t.Context(), answered(429), fault.Throttled, codes.Unavailable},
		"no connection":      {t.Context(), refused, fault.Unavailable, codes.Unavailable},
		"unknown":            {t.Context(), errors.New("what?"), fault.Denied, codes.Unauthenticated},
		"the caller gave up": {canceled, answered(500), fault.Canceled, codes.Unauthenticated},
	} {
		err := credentialsFailed(c.ctx, c.err)
		if got := kindOf(err); got != c.kind {
			t.Errorf("%s: %s, want %s", name, got, c.kind)
		}
		if got, ok := status.FromError(err); !ok || got.Code() != c.code {
			t.Errorf("%s: the status is %v, want %s", name, got, c.code)
		}
		if told := strings.Contains(err.Error(), signIn); told != (c.kind == fault.Denied) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Clients of an emulator refuse credentials.
func TestEmulatorGetsNoCredentials(t *testing.T) {
	cfg, err := LoadConfig("p")
	if err != nil {
		t.Fatal(err)
	}
	real := len(cfg.clientOptions(StorageEmulatorVariable, option.WithEndpoint("x")))
	t.Setenv(StorageEmulatorVariable, "http://127.0.0.1:1")
	if got := len(cfg.clientOptions(StorageEmulatorVariable, option.WithEndpoint("x"))); got != real-1 {
		t.Errorf("%d options for an emulator, %d without one", got, real)
	}
	b, err := NewBucket(t.Context(), cfg, "b", BucketOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Stat(ctx, "k", ""); !fault.Is(err, fault.Canceled) {
		t.Errorf("got %v", err)
	}
}
