package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"rollout/localstack/gcp/fakepubsub"
	"rollout/localstack/scenarios"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/gcp"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// publish puts a message into a topic. If the reply is lost, the message is there.
func (in *installation) publish(t *testing.T, topic, data string) {
	t.Helper()
	_, err := in.pubsub.Publish(t.Context(), &pb.PublishRequest{
		Topic: in.resource("topics", topic), Messages: []*pb.PubsubMessage{{Data: []byte(data)}},
	})
	if err != nil && status.Code(err) != codes.Unavailable {
		t.Fatal(err)
	}
}

// call sends a request of an account to a function and returns the answer.
func (in *installation) call(t *testing.T, method, address, account, body string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if account != "" {
		r.Header.Set("Authorization", "Bearer "+fakepubsub.Token(account, address, time.Now()))
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }() // read only
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// What no function can handle becomes a dead letter, and comes no more.
func TestPoisonBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	in := deploy(t)
	for topic, dead := range map[string]string{
		host.PlanFunction: host.TaskQueue, host.SubmitFunction: host.TaskQueue, host.FinalizeFunction: host.TaskQueue,
		host.CoordinateQueue: host.CoordinateQueue,
	} {
		in.publish(t, topic, "poison of "+topic)
		got, err := in.Ports.Queues.Receive(t.Context(), queue.DeadLetterQueue(dead), 1, time.Minute, 5*time.Minute)
		if err != nil || len(got) != 1 || string(got[0].Body) != "poison of "+topic {
			t.Errorf("%s: the dead letters of %s are %v, %v", topic, dead, got, err)
		}
	}
	if n := strings.Count(in.log.String(), `"dead letter"`); n != 4 {
		t.Errorf("%d messages became dead letters, want each of 4 once", n)
	}
}

func TestPushesOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	in := deploy(t)
	push := func(subscription string) string {
		return `{"message":{"messageId":"1","data":"e30="},"subscription":"` +
			in.resource("subscriptions", subscription) + `"}`
	}
	mine := in.Deployment.Cloud.PubSub.PushAccount
	for name, c := range map[string]struct{ account, body string }{
		"another account":      {"other@acme-ml.iam.gserviceaccount.com", push("plan")},
		"no account":           {"", push("plan")},
		"another subscription": {mine, push("finalize")},
	} {
		status, _ := in.call(t, http.MethodPost, in.addresses["plan"], c.account, c.body)
		if status != http.StatusForbidden {
			t.Errorf("%s: answered %d, want 403", name, status)
		}
	}
	status, _ := in.call(t, http.MethodPost, in.addresses["reclaim"], "me@acme.com", "")
	if status != http.StatusForbidden {
		t.Errorf("a stranger calls the timer: answered %d, want 403", status)
	}
}

// An entry of the audit log makes the workers of a preempted machine drain.
func TestPreemptionInTheAuditLogDrainsWorkers(t *testing.T) {
	t.Parallel()
	in := deploy(t)
	const worker = "01JD2ZQ4T5W0M1X9YB7R3K8CVA"
	now := time.Now()
	hosttest.Save(t, in.Ports, record.HeartbeatKey(worker), health.Heartbeat{Schema: 1, Worker: worker, Pool: "default",
		State: health.Ready, At: now, DueAt: now.Add(time.Minute), Instance: "1844"})
	in.publish(t, gcp.MachinesTopic, `{"protoPayload":{"methodName":"compute.instances.preempted",`+
		`"status":{"message":"Instance was preempted."}},"resource":{"type":"gce_instance",`+
		`"labels":{"instance_id":"1844"}},"timestamp":"2026-11-29T12:00:00Z"}`)
	scenarios.Eventually(t, "the worker is marked", func() bool {
		_, err := in.Ports.Docs.Get(t.Context(), record.WorkerKey(worker))
		return err == nil
	})
	mark := hosttest.Load[record.WorkerMark](t, in.Ports, record.WorkerKey(worker))
	if mark.DrainReason != "Instance was preempted." {
		t.Errorf("the worker's mark is %+v", mark)
	}
}

// The API answers callers with an identity. A retry that one asks for becomes a run.
func TestAPIRetriesARun(t *testing.T) {
	t.Parallel()
	in := open(t, scenarios.Settings{Machines: 1})
	id := in.Put(key, scenarios.MixedPrompts(60))
	first := in.AwaitEnd(id)

	const me = "me@acme.com"
	runs := in.addresses[host.APIFunction] + "/v1/runs"
	if status, _ := in.call(t, http.MethodGet, runs, "", ""); status != http.StatusForbidden {
		t.Errorf("a stranger is answered %d, want 403", status)
	}
	if status, answer := in.call(t, http.MethodGet, runs, me, ""); status != http.StatusOK ||
		!strings.Contains(answer, string(id)) {
		t.Errorf("the runs are %d %s", status, answer)
	}
	var status int
	var answer string
	scenarios.Eventually(t, "the run has ended", func() bool { // its files come first
		status, answer = in.call(t, http.MethodPost, runs+"/"+string(id)+"/retry", me, `{"only":["all"]}`)
		return status != http.StatusConflict
	})
	var child struct {
		Run identity.RunID `json:"run_id"`
	}
	if err := json.Unmarshal([]byte(answer), &child); status != http.StatusAccepted || err != nil {
		t.Fatalf("retry: %d %s", status, answer)
	}
	scenarios.WantSame(t, in.AwaitEnd(child.Run), first)
}
