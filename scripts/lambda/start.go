package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"time"

	"rollout/localstack/subprocess"
)

// startTimeout is how long a start may take at most.
const startTimeout = 2 * time.Minute

// deployment is a config with everything that a function reads at its start. A
// function requests nothing of what it names before the first event.
const deployment = `schema_version = 1
[cloud]
provider = "aws"
region = "us-east-1"
[cloud.s3]
bucket = "acme-batches"
[cloud.secrets]
allowlist = ["api-token"]
[[pool]]
name = "default"
model = "org/model"
`

// pollTimes starts the program the given number of times, one process after the
// other, and returns how long each took to ask for its first event.
func pollTimes(ctx context.Context, program string, times int) ([]time.Duration, error) {
	polled := make(chan time.Time, 1)
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/2018-06-01/runtime/invocation/next" {
			select {
			case polled <- time.Now():
			default:
			}
		}
		<-r.Context().Done() // never sends an event
	}))
	defer api.Close()
	var out []time.Duration
	for range times {
		d, err := start(ctx, program, strings.TrimPrefix(api.URL, "http://"), polled)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// start starts one process, waits for its first poll, and kills it. It returns
// the time until the poll.
func start(ctx context.Context, program, api string, polled <-chan time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = []string{
		"AWS_LAMBDA_RUNTIME_API=" + api, "AWS_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true",
		"ROLLOUT_CONFIG=" + deployment,
	}
	cmd.Stderr = &stderr
	began := time.Now()
	if err := subprocess.Start(cmd); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case at := <-polled:
		cancel()
		<-ended // because it was killed
		return at.Sub(began), nil
	case err := <-ended:
		return 0, fmt.Errorf("the process ended before it asked for an event: %w\n%s", err, stderr.String())
	}
}
