package aws

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/config"
)

// In a function, a request carries the trace header of its context's chain, none in
// a new chain, and that of the invocation if its context continues no chain.
func TestRequestsCarryTheTraceHeaderOfTheirChain(t *testing.T) {
	const invocation = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=3995c3f42cd8ad8f;Sampled=0;Lineage=1:a87bd80c:9"
	t.Setenv("AWS_ACCESS_KEY_ID", "any")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "any")
	t.Setenv("AWS_LAMBDA_FUNCTION_NAME", "acme-coordinate")
	t.Setenv("_X_AMZN_TRACE_ID", invocation)
	got := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get(traceHeader)
		w.WriteHeader(http.StatusAccepted)
	}))
	defer server.Close()
	cfg, err := LoadConfig(t.Context(), slog.New(slog.DiscardHandler), config.WithRegion("eu-west-1"),
		config.WithBaseEndpoint(server.URL))
	if err != nil {
		t.Fatal(err)
	}
	f := NewFunctions(cfg, FunctionOptions{})
	const own = "Root=1-64d38018-6a56d23a731e0cbe6ed85687;Parent=1e4dbd311c45e826;Sampled=0;Lineage="
	continued := ContinueChain(t.Context(), own+"a87bd80c:1|68fd508a:5")
	for name, c := range map[string]struct {
		ctx  context.Context
		want string
	}{
		"the invocation":               {t.Context(), invocation},
		"a message":                    {continued, own + "a87bd80c:1%7C68fd508a:5"},
		"a message with escapes":       {ContinueChain(t.Context(), own+"1:a:1%7C1:b:5"), own + "1:a:1%7C1:b:5"},
		"a message with a line break":  {ContinueChain(t.Context(), "Root=1\nHost: x"), "Root=1%0AHost:%20x"},
		"a message without the header": {ContinueChain(continued, ""), ""},
	} {
		if err := f.Invoke(c.ctx, "f", [][]byte{[]byte("{}")}); err != nil {
			t.Fatal(err)
		}
		if got != c.want {
			t.Errorf("in the chain of %s the header is %q, want %q", name, got, c.want)
		}
	}
}
