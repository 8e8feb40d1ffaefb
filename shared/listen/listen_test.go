package listen_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"rollout/shared/fault"
	"rollout/shared/listen"
)

func TestServeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- listen.Serve(ctx, l, http.NotFoundHandler()) }()
	r, err := http.Get("http://" + l.Addr().String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	if r.StatusCode != http.StatusNotFound || r.Body.Close() != nil {
		t.Errorf("the server replies %s", r.Status)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := listen.Serve(t.Context(), l, nil); !fault.Is(err, fault.Unavailable) ||
		!strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("Serve on a closed listener: %v", err)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		addr  string
		token bool
		ok    bool
	}{
		{"127.0.0.1:8080", false, true}, {"127.9.9.9:8080", false, true}, {"[::1]:8080", false, true}, {"localhost:0",
			false, true},
		{":8080", false, false}, {"0.0.0.0:8080", false, false}, {"[::]:8080", false, false}, {"10.0.0.7:8080", false, false},
		{"example.com:8080", false, false}, {"0.0.0.0:8080", true, true},
		{"8080", true, false}, {"127.0.0.1", true, false}, {"127.0.0.1:", true, false},
	} {
		err := listen.Check(c.addr, c.token)
		if (err == nil) != c.ok || err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("Check(%q, %v): %v", c.addr, c.token, err)
		}
	}
}
