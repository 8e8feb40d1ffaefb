package command

import (
	"strings"
	"testing"
	"time"

	"rollout/functions/api"
	"rollout/shared/blob"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/queue"
)

func TestResendUploadSendsTheEventAgain(t *testing.T) {
	t.Parallel()
	p := hosttest.New().WithSource("cli")
	service := api.New(p, config.DefaultDeployment(), cloud.OneMachine())
	if _, err := p.Blobs.Put(t.Context(), "prompts/x.jsonl", strings.NewReader("{}\n"), blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if note := resendUpload(t.Context(), service, "prompts/x.jsonl"); !strings.HasSuffix(note, "event was sent again") {
		t.Error(note)
	}
	got, err := p.Queues.Receive(t.Context(), host.TaskQueue, queue.MaxBatch, time.Minute, 0)
	if err != nil || len(got) != 1 || !strings.Contains(string(got[0].Body), "prompts/x.jsonl") {
		t.Errorf("%v, %v", got, err)
	}
	note := resendUpload(t.Context(), service, "prompts/gone.jsonl")
	if !strings.Contains(note, "there is no object prompts/gone.jsonl") {
		t.Error(note)
	}
}
