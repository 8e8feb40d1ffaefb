package emulators

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"rollout/events"
	"rollout/shared/aws"
	"rollout/shared/blob"
	"rollout/shared/engine/identity"
	"rollout/shared/host"
	"rollout/shared/queue"
	"rollout/shared/record"
)

const deployment = "schema_version = 1\nsecrets = [\"api-token\"]\n[[pool]]\nname = \"default\"\nmodel = \"mock\"\n"

// installation is a deployment on an emulator.
type installation struct {
	Endpoint
	blobs  *aws.Bucket
	docs   *aws.Documents
	queues *aws.Queues
	prefix string
}

func install(t *testing.T) installation {
	t.Helper()
	e := InProcess(t)
	e.MakeBucket(t.Context(), t)
	e.MakeTable(t.Context(), t)
	cfg, prefix := e.Config(t.Context(), t), fresh()+"-"
	i := installation{Endpoint: e, blobs: aws.NewBucket(cfg, e.Bucket, aws.BucketOptions{}),
		docs: aws.NewDocuments(cfg, e.Table, aws.DocumentOptions{Listed: aws.Listed()}), queues: e.Queues(t, prefix), prefix: prefix}
	for _, q := range []string{host.CoordinateQueue, host.TaskQueue, host.PlanQueue} { // the stack makes them
		if _, _, err := i.queues.Depth(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	return i
}

// notification is what S3 says of an object: its key is encoded as in a form.
func (i installation) notification(info blob.Info) string {
	return fmt.Sprintf(`{"Records":[{"eventVersion":"2.1","eventSource":"aws:s3","awsRegion":"us-east-1","eventName":"ObjectCreated:Put","s3":{"s3SchemaVersion":"1.0",
		"bucket":{"name":%q},"object":{"key":%q,"size":%d,"eTag":"x","versionId":%q,"sequencer":"0055AED6DCD90281E5"}}}]}`,
		i.Bucket, url.QueryEscape(info.Key), info.Size, info.Version)
}

// bridged is what EventBridge says of it: the key as it is.
func (i installation) bridged(t *testing.T, info blob.Info) string {
	key, err := json.Marshal(info.Key)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"version":"0","source":"aws.s3","detail-type":"Object Created","detail":{"version":"0","bucket":{"name":%q},"object":{"key":%s,"size":%d,"etag":"x","version-id":%q}}}`,
		i.Bucket, key, info.Size, info.Version)
}

// Keys that go wrong where they are decoded twice or not at all become runs, by
// either way, and twice the same run.
func TestSubmitOnLambdaMakesRunsOfObjects(t *testing.T) {
	t.Parallel()
	i := install(t)
	submit := Function(t, "submit", i.Environment(i.prefix, deployment)...)
	for n, name := range []string{"a b.jsonl", "a+b.jsonl", "a%2Bb.jsonl", "100%.jsonl", "a&b=c?.jsonl", "日本 語.jsonl"} {
		info, err := i.blobs.Put(t.Context(), "prompts/"+name, strings.NewReader(`{"prompt":"x"}`+"\n"), blob.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range []string{i.notification(info), i.bridged(t, info)} {
			if r := submit.Invoke(t, event, time.Minute); r.Failed {
				t.Errorf("%s: %s", name, r.Body)
			}
		}
		run := identity.UploadRun(i.Bucket, info.Key, info.Version)
		d, err := i.docs.Get(t.Context(), record.ManifestKey(run))
		if err != nil || !strings.Contains(string(d.Value), info.Version) {
			t.Errorf("%s: the manifest is %s, %v", name, d.Value, err)
		}
		if all, err := i.docs.List(t.Context(), "run/", "", 100); err != nil || len(all) != n+1 {
			t.Errorf("%s: %d runs, %v", name, len(all), err)
		}
	}
	ms, err := i.queues.Receive(t.Context(), host.TaskQueue, 100, time.Minute, 0)
	if err != nil || len(ms) < 6 {
		t.Errorf("%d tasks, %v", len(ms), err)
	}
	for name, c := range map[string]struct {
		event  string
		failed bool
	}{
		"S3 tries out whether it may":    {`{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"b"}`, false},
		"an event about something else":  {`{"source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning"}`, false},
		"an object without a version":    {`{"Records":[{"eventSource":"aws:s3","eventName":"ObjectCreated:Put","s3":{"bucket":{"name":"b"},"object":{"key":"prompts/x.jsonl"}}}]}`, true},
		"a key that is no encoded key":   {`{"Records":[{"eventSource":"aws:s3","eventName":"ObjectCreated:Put","s3":{"bucket":{"name":"b"},"object":{"key":"%zz","versionId":"1"}}}]}`, true},
		"an object that is none of ours": {i.notification(blob.Info{Key: "other/x.jsonl", Version: "1"}), false},
		"an object that is gone":         {i.notification(blob.Info{Key: "prompts/gone.jsonl", Version: "1", Size: 5}), false},
	} {
		if r := submit.Invoke(t, c.event, time.Minute); r.Failed != c.failed {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// sqsEvent is what a queue's mapping calls a function with.
func sqsEvent(t *testing.T, ms []queue.Message) string {
	t.Helper()
	var records []map[string]any
	for _, m := range ms {
		records = append(records, map[string]any{"messageId": m.ID, "receiptHandle": m.Receipt, "body": string(m.Body), "eventSource": "aws:sqs",
			"attributes": map[string]string{"ApproximateReceiveCount": fmt.Sprint(m.Receives)}, "messageAttributes": map[string]any{}})
	}
	b, err := json.Marshal(map[string]any{"Records": records})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Of a batch, what can't be read or is about no run goes to the dead letters,
// and what has no time left comes back, each by itself.
func TestCoordinateOnLambdaReportsEachMessage(t *testing.T) {
	t.Parallel()
	i := install(t)
	coordinate := Function(t, "coordinate", i.Environment(i.prefix, deployment)...)
	run := identity.UploadRun(i.Bucket, "prompts/x.jsonl", "1")
	if _, err := i.docs.Create(t.Context(), record.ManifestKey(run), fmt.Appendf(nil, `{"schema":1,"run":%q,"kind":"batch"}`, run)); err != nil {
		t.Fatal(err)
	}
	ring := func(run identity.RunID) []byte {
		b, err := events.Encode(events.Ring{Run: string(run)}, events.Meta{Source: "rollout/test", Time: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	nowhere := identity.UploadRun(i.Bucket, "prompts/x.jsonl", "2")
	if err := i.queues.Send(t.Context(), host.CoordinateQueue, [][]byte{ring(run), []byte("nonsense"), ring(nowhere)}, 0); err != nil {
		t.Fatal(err)
	}
	ms, err := i.queues.Receive(t.Context(), host.CoordinateQueue, 10, time.Minute, 10*time.Second)
	if err != nil || len(ms) != 3 {
		t.Fatalf("%d messages, %v", len(ms), err)
	}
	if r := coordinate.Invoke(t, sqsEvent(t, ms), time.Minute); r.Failed || r.Body != `{"batchItemFailures":[]}` {
		t.Errorf("%+v", r)
	}
	dead, err := i.queues.Receive(t.Context(), queue.DeadLetters(host.CoordinateQueue), 10, time.Minute, 10*time.Second)
	for _, m := range dead {
		if strings.Contains(string(m.Body), string(run)) {
			t.Errorf("dead letter: %s", m.Body)
		}
	}
	if err != nil || len(dead) != 2 {
		t.Errorf("%d dead letters, %v", len(dead), err)
	}
	if r := coordinate.Invoke(t, sqsEvent(t, ms[:1]), -time.Second); r.Failed || !strings.Contains(r.Body, fmt.Sprintf(`"itemIdentifier":%q`, ms[0].ID)) {
		t.Errorf("without time: %+v", r)
	}
}

// The API answers behind a function URL to whoever has the token.
func TestTheAPIOnLambdaDemandsItsToken(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.secret(t, "rollout/api-token", "s3cret")
	api := Function(t, "api", i.Environment(i.prefix, deployment)...)
	ask := func(path, token string) string {
		event := fmt.Sprintf(`{"version":"2.0","rawPath":%q,"rawQueryString":"","headers":{"host":"x.lambda-url.us-east-1.on.aws","authorization":"Bearer %s"},
			"requestContext":{"domainName":"x.lambda-url.us-east-1.on.aws","http":{"method":"GET","path":%q,"protocol":"HTTP/1.1","sourceIp":"198.51.100.7"}},"isBase64Encoded":false}`, path, token, path)
		return api.Invoke(t, event, time.Minute).Body
	}
	for what, c := range map[string]struct{ path, token, want string }{
		"runs":             {"/v1/runs", "s3cret", `{"runs":[]}`},
		"a wrong token":    {"/v1/runs", "guess", `"statusCode":401`},
		"no token":         {"/v1/runs", "", `"statusCode":401`},
		"health, to all":   {"/healthz", "", `"statusCode":200`},
		"nothing is there": {"/v1/nothing", "s3cret", `"statusCode":404`},
	} {
		if got := ask(c.path, c.token); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %s", what, got, c.want)
		}
	}
}
