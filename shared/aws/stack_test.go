package aws

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	staticcredentials "github.com/aws/aws-sdk-go-v2/credentials"

	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/observe/meter"
	"rollout/shared/queue"
)

// deployment returns the config of a stack in eu-west-1.
func deployment(t *testing.T) config.Deployment {
	t.Helper()
	d, err := config.ParseDeployment("x.toml", []byte(`
schema_version = 1
[cloud]
provider = "aws"
region = "eu-west-1"
name = "acme"
[cloud.s3]
bucket = "acme-batches"
prefix = "team-a/"
`))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestOpenStackSendsNoRequests(t *testing.T) {
	t.Parallel()
	unreachable := awsconfig.WithBaseEndpoint("http://127.0.0.1:1")
	credentials := awsconfig.WithCredentialsProvider(
		staticcredentials.NewStaticCredentialsProvider("000000000000", "none", ""))
	sdk := []func(*awsconfig.LoadOptions) error{unreachable, credentials}
	s, err := OpenStack(t.Context(), deployment(t), StackOptions{SDK: sdk})
	if err != nil {
		t.Fatal(err)
	}
	if s.AWS.Region != "eu-west-1" || s.Ports.Source != "cli" || s.Ports.Log == nil || s.Ports.Clock == nil {
		t.Errorf(
			"region %q, source %q, logger %v, clock %v",
			s.AWS.Region,
			s.Ports.Source,
			s.Ports.Log,
			s.Ports.Clock,
		)
	}
	if _, ok := s.Ports.Queues.(queue.Depther); !ok {
		t.Error("the queues do not implement queue.Depther")
	}
	o := StackOptions{Options: cloud.Options{Meter: meter.New()}}
	if _, err := OpenStack(t.Context(), deployment(t), o); err != nil {
		t.Errorf("with a meter: %v", err)
	}
}

func TestOpenStackRefusesLocalConfig(t *testing.T) {
	t.Parallel()
	_, err := OpenStack(t.Context(), config.DefaultDeployment(), StackOptions{})
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "[cloud]") {
		t.Errorf("OpenStack = %v, want Invalid with a remedy", err)
	}
}

// With UseServiceClock, a machine with a wrong clock judges heartbeats by the stack's
// time. A worker uses its own clock.
func TestOpenStackUsesServiceClockOnRequest(t *testing.T) {
	t.Parallel()
	const ahead = 5 * time.Minute
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
		_, _ = w.Write([]byte("{}"))
	}))
	t.Cleanup(server.Close)
	sdk := []func(*awsconfig.LoadOptions) error{
		awsconfig.WithBaseEndpoint(server.URL),
		awsconfig.WithCredentialsProvider(
			staticcredentials.NewStaticCredentialsProvider("000000000000", "none", "")),
	}
	for useService, want := range map[bool]time.Duration{true: ahead, false: 0} {
		o := StackOptions{Options: cloud.Options{UseServiceClock: useService}, SDK: sdk}
		s, err := OpenStack(t.Context(), deployment(t), o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Ports.Docs.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if off := time.Until(s.Ports.Clock.Now()) - want; off.Abs() > time.Minute {
			t.Errorf("UseServiceClock %t: the clock is off by %v", useService, off)
		}
	}
}
