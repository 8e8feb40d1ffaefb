package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"time"

	"rollout/functions/reclaim"
	"rollout/localstack/aws/fakeaws"
	"rollout/localstack/fakellm"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/ownership"
	"rollout/shared/record"
)

// options configure the measurement.
type options struct {
	shards, items, workers int
	rate                   float64
	latency                time.Duration
	source                 string
}

// measurement holds the counts.
type measurement struct {
	options
	Shards, Samples int     // as planned
	Seconds         float64 // duration of the run
	WorkerSeconds   float64 // sum of the times of its workers until its end
	Billed          float64 // dollars of the control plane, as the run's summary has them
	// Run are the requests of the run, Minute those of all idle minutes together,
	// without a run and without workers, Hour those of the hourly scan for uploads.
	Run          map[fakeaws.RequestKind]fakeaws.Count
	Minute, Hour map[fakeaws.RequestKind]fakeaws.Count
	Calls        map[string]fakeaws.Calls
	MinuteBilled time.Duration // of reclaim
	DeadLetters  int           // dead letter queues, each with an alarm
	PolledQueues int           // by Lambda
	Training     training      // in another deployment
}

// pool is the deployment's pool that answers prompts.
const pool = "default"

const patience = 15 * time.Minute // for the run to end

// deployment is the text of a config like that of the README, with another
// inference server and idle time. The price makes the time of machines count, whose type is not
// known here.
func (o options) deployment(url string) string {
	return deploymentNamed("c") + fmt.Sprintf(`[cloud.fleet]
max_machines = %d
shards_per_machine = 1
idle = "1h"
[engine]
url = %q
[worker]
in_flight = 64
[defaults.shard]
items = %d
[[pool]]
name = %q
model = "fake"
price = 0.25
`, o.workers, url+"/v1", o.items, pool)
}

// deploymentNamed is the beginning of a config of an installation with a new name, which has
// the prefix.
func deploymentNamed(prefix string) string {
	name := prefix + strings.ToLower(rand.Text()[:7])
	return fmt.Sprintf(`schema_version = 1
[cloud]
provider = "aws"
region = %q
name = %q
[cloud.s3]
bucket = "bucket-%s"
`, fakeaws.Region, name, name)
}

// measure counts the requests of a run, of idle minutes and of a training.
func measure(ctx context.Context, o options) (measurement, error) {
	m := measurement{options: o, Shards: o.shards, Samples: o.shards * o.items, DeadLetters: 4, PolledQueues: 1}
	programs, err := fakeaws.Build(ctx, o.source, filepath.Join(o.source, "out", "emulated"))
	if err != nil {
		return m, err
	}
	llm, err := fakellm.New(fakellm.Config{Model: "fake", Latency: o.latency, Spread: 0.5, Tokens: 120})
	if err != nil {
		return m, err
	}
	engine := httptest.NewServer(llm)
	defer engine.Close()
	text := o.deployment(engine.URL)
	d, err := config.ParseDeployment("rollout.toml", []byte(text))
	if err != nil {
		return m, err
	}
	s, err := fakeaws.Deploy(ctx, programs, fakeaws.Options{Config: text})
	if err != nil {
		return m, err
	}
	defer s.Close()
	began := time.Now()
	var summary record.Summary
	id, err := upload(ctx, s, d, m.Samples)
	if err == nil {
		summary, err = end(ctx, s, id)
	}
	if err != nil {
		return m, err
	}
	m.Shards, m.Billed = summary.Shards, summary.Cost.Functions+summary.Cost.Storage
	m.Seconds = time.Since(began).Seconds()
	_, peak, _ := s.Groups.Size(d.Cloud.FleetName(pool))
	m.WorkerSeconds = m.Seconds * float64(peak)
	m.Run, m.Calls = s.Meter.Counts(), s.Calls()
	if err := idle(ctx, s, d, &m); err != nil {
		return m, err
	}
	m.Training, err = measureTraining(ctx, programs)
	return m, err
}

// upload uploads a file of prompts of about 1.2 KB each.
func upload(ctx context.Context, s *fakeaws.Deployed, d config.Deployment, samples int) (identity.RunID, error) {
	front, err := fakeaws.OpenInstallation(ctx, d, s.URL, "user")
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for n := range samples {
		fmt.Fprintf(&b, "{\"id\":\"p-%07d\",\"prompt\":\"%d %s\"}\n", n, n, strings.Repeat("to be or not to be, ", 55))
	}
	info, err := front.Bucket.Put(ctx, "prompts/cost.jsonl", strings.NewReader(b.String()), blob.PutOptions{})
	if err != nil {
		return "", err
	}
	return identity.UploadRun(d.Bucket, info.Key, info.Version), nil
}

// end waits until the run has ended and returns its summary.
func end(ctx context.Context, s *fakeaws.Deployed, id identity.RunID) (summary record.Summary, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		r, _, err := s.Stack.Ports.Blobs.Get(ctx, record.OutputKey(id, record.SummaryFile), blob.GetOptions{})
		if err == nil {
			err = json.NewDecoder(r).Decode(&summary)
			_ = r.Close() // read only
			if err == nil && summary.Failed > 0 {
				err = fmt.Errorf("%d of %d items failed", summary.Failed, summary.Items)
			}
			return summary, err
		}
		if !fault.Is(err, fault.NotFound) && ctx.Err() == nil {
			return summary, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return summary, errors.Join(ctx.Err(),
				errors.New("the run has not ended; logs: "+s.Logs("coordinate")+s.Logs("reclaim")))
		}
	}
}

const minutes = 5 // idle minutes that are counted

// idle counts minutes without workers and without a run, once reclaim has closed
// the run.
func idle(ctx context.Context, s *fakeaws.Deployed, d config.Deployment, m *measurement) error {
	if err := s.Groups.SetDesired(d.Cloud.FleetName(pool), 0); err != nil {
		return err
	}
	for open := true; open; {
		if err := minute(ctx, s); err != nil {
			return err
		}
		runs, err := s.Stack.Ports.Docs.List(ctx, record.OpenRunPrefix, "", 1)
		if err != nil {
			return err
		}
		open = len(runs) > 0
	}
	before, calls := s.Meter.Counts(), s.Calls()["reclaim"]
	for range minutes {
		if err := minute(ctx, s); err != nil {
			return err
		}
	}
	after := s.Calls()["reclaim"]
	m.Minute = fakeaws.DiffCounts(s.Meter.Counts(), before)
	m.MinuteBilled = (after.Billed - calls.Billed) / minutes
	return hour(ctx, s, d, m)
}

// hour counts the scan that reclaim makes once an hour.
func hour(ctx context.Context, s *fakeaws.Deployed, d config.Deployment, m *measurement) error {
	stack, err := fakeaws.OpenInstallation(ctx, d, s.URL, "reclaim")
	if err != nil {
		return err
	}
	before := s.Meter.Counts()
	err = reclaim.ScanUploads(ctx, stack.Ports, reclaim.UploadOptions{Bucket: d.Bucket, Recent: true,
		CheckOwner: ownership.OfCloud(stack).Check})
	m.Hour = fakeaws.DiffCounts(s.Meter.Counts(), before)
	return err
}

// minute runs one minute of the schedule and waits for the end of its invocation.
func minute(ctx context.Context, s *fakeaws.Deployed) error {
	before := s.Calls()["reclaim"].Count
	s.Tick()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for s.Calls()["reclaim"].Count == before {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
