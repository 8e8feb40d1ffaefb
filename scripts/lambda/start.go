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

// patience is how long a start may take at most.
const patience = 2 * time.Minute

// deployment is a config with everything that a function reads; nobody is asked
// for what it names.
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

// pollTimes starts the program as often and returns how long each process took
// to ask for its first event.
func pollTimes(ctx context.Context, program string, times int) ([]time.Duration, error) {
	polled := make(chan time.Time, 1)
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/2018-06-01/runtime/invocation/next" {
			select {
			case polled <- time.Now():
			default:
			}
		}
		<-r.Context().Done() // there is no event
	}))
	defer api.Close()
	var took []time.Duration
	for range times {
		d, err := start(ctx, program, strings.TrimPrefix(api.URL, "http://"), polled)
		if err != nil {
			return nil, err
		}
		took = append(took, d)
	}
	return took, nil
}

// start starts one process, waits for its first poll and ends it.
func start(ctx context.Context, program, api string, polled <-chan time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = []string{"AWS_LAMBDA_RUNTIME_API=" + api, "AWS_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true", "ROLLOUT_CONFIG=" + deployment}
	cmd.Stderr = &said
	began := time.Now()
	if err := subprocess.Start(cmd); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case at := <-polled:
		cancel()
		<-ended // it was killed
		return at.Sub(began), nil
	case err := <-ended:
		return 0, fmt.Errorf("it asked for no event: %w\n%s", err, said.String())
	}
}
