package aws

import (
	"net/http"
	"net/http/httptest"
	"rollout/shared/cloud"
	"testing"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	staticcredentials "github.com/aws/aws-sdk-go-v2/credentials"
)

// Whoever looks from a machine whose clock is wrong sees who is alive there; a
// worker's clock is its own, which is compared with theirs.
func TestWhoLooksFromOutsideHasTheStacksTime(t *testing.T) {
	t.Parallel()
	const ahead = 5 * time.Minute
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
		_, _ = w.Write([]byte("{}"))
	}))
	t.Cleanup(server.Close)
	there := awsconfig.WithBaseEndpoint(server.URL)
	nobody := awsconfig.WithCredentialsProvider(staticcredentials.NewStaticCredentialsProvider("000000000000", "none", ""))
	for theirs, want := range map[bool]time.Duration{true: ahead, false: 0} {
		s, err := OpenStack(t.Context(), deployment(t), StackOptions{Options: cloud.Options{UseServiceClock: theirs}, SDK: []func(*awsconfig.LoadOptions) error{there, nobody}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Ports.Docs.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if off := time.Until(s.Ports.Clock.Now()) - want; off.Abs() > time.Minute {
			t.Errorf("their time %t: it is off by %v", theirs, off)
		}
	}
}
