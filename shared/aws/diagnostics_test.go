package aws

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"

	"rollout/shared/capacity"
)

// computer is a machine with one GPU and without notices.
type computer struct{}

func (computer) Inventory(context.Context) (capacity.Inventory, error) {
	return capacity.Inventory{CPUs: 1, MemoryBytes: 1 << 30, GPUs: make([]capacity.GPU, 1)}, nil
}

func (computer) Notices(context.Context) <-chan capacity.Notice { return nil }

func TestInspectDescribesTheMachineOnAndOffEC2(t *testing.T) {
	t.Parallel()
	const id, action = "meta-data/instance-id", "meta-data/spot/instance-action"
	for name, c := range map[string]struct {
		metadata  map[string]string // by path; "!" is a failure
		want, err string
	}{
		"off EC2":        {nil, "1 GPUs, not on an EC2 instance", ""},
		"on an instance": {map[string]string{id: "i-0123456789abcdef0"}, "1 GPUs, i-0123456789abcdef0", ""},
		"with a spot notice": {
			map[string]string{id: "i-0123456789abcdef0", action: `{"action":"terminate","time":"2026-11-28T08:22:00Z"}`},
			"1 GPUs, i-0123456789abcdef0, goes away: spot", "",
		},
		"with refused notices": {
			map[string]string{id: "i-0123456789abcdef0", action: "!"}, "", "ask for a notice",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				text, ok := c.metadata[strings.TrimPrefix(r.URL.Path, "/latest/")]
				switch {
				case r.Method == http.MethodPut:
					w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60")
					_, _ = io.WriteString(w, "a-token") // the test sees what is missing
				case text == "!":
					w.WriteHeader(http.StatusForbidden)
				case !ok:
					w.WriteHeader(http.StatusNotFound)
				default:
					_, _ = io.WriteString(w, text) // likewise
				}
			}))
			t.Cleanup(at.Close)
			sdk := []func(*imds.Options){func(o *imds.Options) { o.Endpoint = at.URL }}
			instance := NewInstance(awssdk.Config{}, computer{}, InstanceOptions{SDK: sdk})
			got, err := inspect(instance)(t.Context())
			if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q, %v; want %q, %q", got, err, c.want, c.err)
			}
		})
	}
}

// An address may have a password.
func TestReachReportsTheEndpointWithoutItsPassword(t *testing.T) {
	t.Parallel()
	at := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(at.Close)
	secretive := strings.Replace(at.URL, "//", "//user:s3cr3t@", 1)
	found, err := reach(awssdk.Config{BaseEndpoint: &secretive, HTTPClient: at.Client()})(t.Context())
	if want := strings.Replace(at.URL, "//", "//user:xxxxx@", 1); found != want || err != nil {
		t.Errorf("%q, %v; want %q", found, err, want)
	}
}
