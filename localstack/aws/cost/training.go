package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"rollout/localstack/aws/fakeaws"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/cost"
	"rollout/shared/core/identity"
	"rollout/shared/record"
)

// The training that is counted.
const (
	trainers      = "trainers" // its pool
	trainingSteps = 10
	snapshotEvery = 5

	trainingConfig = `schema_version = 1
kind = "train"
[algorithm.sft]
base_model = "rollout/tiny"
[algorithm.sft.optimizer]
lr = 1.0e-3
[algorithm.sft.budget]
max_steps = %d
[snapshot]
every_steps = %d
`
	trainingRow = `{"prompt":"And the light ","completion":"was good."}` + "\n"
)

// training holds the counts of a training.
type training struct {
	Seconds float64 // from its upload to its end
	Run     map[fakeaws.RequestKind]fakeaws.Count
	Calls   map[string]fakeaws.Calls
	Machine string // type of its machine
}

// measureTraining counts the requests of a training, in a deployment of its own.
func measureTraining(ctx context.Context, programs fakeaws.Programs) (training, error) {
	text := deploymentNamed("t") + "[cloud.fleet]\nmax_machines = 1\nidle = \"1h\"\n[[pool]]\nname = \"" + trainers +
		"\"\nmodel = \"" + config.ModelTiny + "\"\nexecutor = \"train\"\n"
	d, err := config.ParseDeployment("rollout.toml", []byte(text))
	if err != nil {
		return training{}, err
	}
	s, err := fakeaws.Deploy(ctx, programs, fakeaws.Options{Config: text})
	if err != nil {
		return training{}, err
	}
	defer s.Close()
	began := time.Now()
	id, err := uploadTraining(ctx, s, d)
	if err == nil {
		var summary record.Summary
		if summary, err = end(ctx, s, id); err == nil && summary.Shards != 1 {
			err = fmt.Errorf("the training has %d shards, want 1: it was refused", summary.Shards)
		}
	}
	return training{time.Since(began).Seconds(), s.Meter.Counts(), s.Calls(), d.InstanceTypesOf(trainers)[0]}, err
}

// uploadTraining uploads the config of a training, then its rows.
func uploadTraining(ctx context.Context, s *fakeaws.Deployed, d config.Deployment) (identity.RunID, error) {
	front, err := fakeaws.OpenInstallation(ctx, d, s.URL, "user")
	if err != nil {
		return "", err
	}
	settings := fmt.Sprintf(trainingConfig, trainingSteps, snapshotEvery)
	settingsFile := strings.NewReader(settings)
	if _, err := front.Bucket.Put(ctx, "prompts/training.toml", settingsFile, blob.PutOptions{}); err != nil {
		return "", err
	}
	rows := strings.NewReader(strings.Repeat(trainingRow, 8))
	info, err := front.Bucket.Put(ctx, "prompts/training.jsonl", rows, blob.PutOptions{})
	if err != nil {
		return "", err
	}
	return identity.UploadRun(d.Bucket, info.Key, info.Version), nil
}

// steps is the bill of the counted training, without its machine.
func (t training) steps(p prices) []Line {
	ours := requests(t.Run, work)
	ours.functions(t.Calls)
	return ours.lines(p, 1)
}

// hour is the bill of an hour of its machine: the machine, and what a worker asks for by time,
// as the workers of the other run did.
func (t training) hour(m measurement, p prices) []Line {
	lines := []Line{{What: t.Machine + ", spot", Count: 1, Unit: "hours", Dollars: t.hourOfMachine()}}
	return append(lines, requests(m.Run, periodic).lines(p, time.Hour.Seconds()/m.WorkerSeconds)...)
}

// hourOfMachine is what a spot machine costs in an hour.
func (t training) hourOfMachine() float64 {
	return listed.Hour(cost.Kind{Type: t.Machine, Class: cost.Spot})
}

// machineOf is what the machine costs for so many seconds of work. It is billed by the second,
// for a minute at least.
func (t training) machineOf(seconds float64) float64 {
	return t.hourOfMachine() * math.Max(seconds, time.Minute.Seconds()) / time.Hour.Seconds()
}
