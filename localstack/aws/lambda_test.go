package emulators

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/events"
	"rollout/shared/aws"
	"rollout/shared/blob"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	engine "rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// installation is a deployment on an emulator, whose functions run as processes.
type installation struct {
	Endpoint
	blobs  *aws.Bucket // below the prefix
	docs   *aws.Documents
	queues *aws.Queues
	name   string
	called *recordedCalls // calls of other functions
}

// prefix is the prefix of an installation's objects.
const prefix = "team-a/"

// install makes an installation.
func install(t *testing.T) installation {
	t.Helper()
	e := StartKumo(t)
	e.MakeBucket(t.Context(), t)
	e.MakeTable(t.Context(), t)
	cfg, name := e.Config(t.Context(), t), "t"+fresh()
	i := installation{Endpoint: e, blobs: aws.NewBucket(cfg, e.Bucket, aws.BucketOptions{Prefix: prefix}), name: name,
		called: &recordedCalls{},
		docs:   aws.NewDocuments(cfg, e.Table, aws.DocumentOptions{Listed: aws.ListedPrefixes()}),
		queues: e.Queues(t, name+"-")}
	for _, q := range []string{host.CoordinateQueue, queue.DeadLetterQueue(host.TaskQueue)} { // the stack creates them
		if _, _, err := i.queues.Depth(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	return i
}

// function starts a function of the installation.
func (i installation) function(t *testing.T, name string, secrets ...string) *LocalFunction {
	t.Helper()
	at := httptest.NewServer(i.called)
	t.Cleanup(at.Close)
	return StartFunction(t, name, i.Environment(i.Deployment(i.name, prefix, secrets...), at.URL)...)
}

// recordedCalls is a Lambda API that records the calls of functions.
type recordedCalls struct {
	mu    sync.Mutex
	calls []call
}

type call struct {
	path, kind string
	event      events.Payload
}

func (c *recordedCalls) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, p, _ := events.Decode(body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, call{r.URL.Path, r.Header.Get("X-Amz-Invocation-Type"), p})
	w.WriteHeader(http.StatusAccepted)
}

// take returns the calls since the last take.
func (c *recordedCalls) take() []call {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.calls
	c.calls = nil
	return out
}

// notification is S3's event of an object. Its key is encoded as in a form.
func (i installation) notification(info blob.Info) string {
	return fmt.Sprintf(`{"Records":[{"eventVersion":"2.1","eventSource":"aws:s3","awsRegion":"us-east-1",`+
		`"eventName":"ObjectCreated:Put","s3":{"s3SchemaVersion":"1.0",
		"bucket":{"name":%q},"object":{"key":%q,"size":%d,"eTag":"x","versionId":%q,"sequencer":"0055AED6DCD90281E5"}}}]}`,
		i.Bucket, url.QueryEscape(prefix+info.Key), info.Size, info.Version)
}

// eventBridgeEvent is EventBridge's event of an object. Its key is not encoded.
func (i installation) eventBridgeEvent(t *testing.T, info blob.Info) string {
	key, err := json.Marshal(prefix + info.Key)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"version":"0","source":"aws.s3","detail-type":"Object Created","detail":{"version":"0",`+
		`"bucket":{"name":%q},"object":{"key":%s,"size":%d,"etag":"x","version-id":%q}}}`,
		i.Bucket, key, info.Size, info.Version)
}

// The keys break if they are decoded twice or not at all. Each object becomes one
// run, announced by S3 and by EventBridge.
func TestSubmitOnLambdaMakesRunsOfObjects(t *testing.T) {
	t.Parallel()
	i := install(t)
	submit := i.function(t, "submit")
	for n, name := range []string{"a b.jsonl", "a+b.jsonl", "a%2Bb.jsonl", "100%.jsonl", "a&b=c?.jsonl",
		"日本 語.jsonl"} {
		info, err := i.blobs.Put(t.Context(), "prompts/"+name, strings.NewReader(`{"prompt":"x"}`+"\n"), blob.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range []string{i.notification(info), i.eventBridgeEvent(t, info)} {
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
	calls := i.called.take()
	for _, c := range calls {
		if _, ok := c.event.(events.RunSubmitted); !ok || c.path != "/2015-03-31/functions/"+i.name+"-plan/invocations" ||
			c.kind != "Event" {
			t.Errorf("the calls are %+v", c)
		}
	}
	if len(calls) < 6 {
		t.Errorf("%d tasks", len(calls))
	}
	for name, c := range map[string]struct {
		event  string
		failed bool
	}{
		"the test event of S3": {`{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"b"}`, false},
		"another event": {`{"source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning"}`,
			false},
		"an object without a version": {`{"Records":[{"eventSource":"aws:s3","eventName":"ObjectCreated:Put",` +
			`"s3":{"bucket":{"name":"` + i.Bucket + `"},"object":{"key":"team-a/prompts/x.jsonl"}}}]}`, true},
		"an unencoded key outside prompts/": {`{"Records":[{"eventSource":"aws:s3","eventName":"ObjectCreated:Put",` +
			`"s3":{"bucket":{"name":"b"},"object":{"key":"%zz","versionId":"1"}}}]}`, false},
		"an object outside the prefix": {strings.Replace(i.notification(blob.Info{Key: "prompts/x.jsonl", Version: "1"}),
			url.QueryEscape(prefix), "", 1), false},
		"an object outside prompts/": {i.notification(blob.Info{Key: "other/x.jsonl", Version: "1"}), false},
		"a deleted object":           {i.notification(blob.Info{Key: "prompts/gone.jsonl", Version: "1", Size: 5}), false},
	} {
		if r := submit.Invoke(t, c.event, time.Minute); r.Failed != c.failed {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// sqsEvent is the event with which a queue's mapping calls a function.
func sqsEvent(t *testing.T, ms []queue.Message) string {
	t.Helper()
	var records []map[string]any
	for _, m := range ms {
		records = append(records, map[string]any{"messageId": m.ID, "receiptHandle": m.Receipt, "body": string(m.Body),
			"eventSource":       "aws:sqs",
			"attributes":        map[string]string{"ApproximateReceiveCount": fmt.Sprint(m.Receives)},
			"messageAttributes": map[string]any{}})
	}
	b, err := json.Marshal(map[string]any{"Records": records})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Invalid messages and messages of unknown runs become dead letters. Messages that
// time does not suffice for come back.
func TestCoordinateOnLambdaReportsEachMessage(t *testing.T) {
	t.Parallel()
	i := install(t)
	coordinate := i.function(t, "coordinate")
	run := identity.UploadRun(i.Bucket, "prompts/x.jsonl", "1")
	if _, err := i.docs.Create(t.Context(), record.ManifestKey(run),
		fmt.Appendf(nil, `{"schema":1,"run":%q,"kind":"batch"}`, run)); err != nil {
		t.Fatal(err)
	}
	wakeup := func(run identity.RunID) []byte {
		b, err := events.Encode(events.Wakeup{Run: string(run)}, events.Meta{Source: "rollout/test", Time: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	unknown := identity.UploadRun(i.Bucket, "prompts/x.jsonl", "2")
	if err := i.queues.Send(t.Context(), host.CoordinateQueue,
		[][]byte{wakeup(run), []byte("nonsense"), wakeup(unknown)}, 0); err != nil {
		t.Fatal(err)
	}
	ms, err := i.queues.Receive(t.Context(), host.CoordinateQueue, 10, time.Minute, 10*time.Second)
	if err != nil || len(ms) != 3 {
		t.Fatalf("%d messages, %v", len(ms), err)
	}
	if r := coordinate.Invoke(t, sqsEvent(t, ms), time.Minute); r.Failed || r.Body != `{"batchItemFailures":[]}` {
		t.Errorf("%+v", r)
	}
	dead, err := i.queues.Receive(t.Context(), queue.DeadLetterQueue(host.CoordinateQueue), 10, time.Minute,
		10*time.Second)
	for _, m := range dead {
		if strings.Contains(string(m.Body), string(run)) {
			t.Errorf("dead letter: %s", m.Body)
		}
	}
	if err != nil || len(dead) != 2 {
		t.Errorf("%d dead letters, %v", len(dead), err)
	}
	if r := coordinate.Invoke(t, sqsEvent(t, ms[:1]), -time.Second); r.Failed ||
		!strings.Contains(r.Body, fmt.Sprintf(`"itemIdentifier":%q`, ms[0].ID)) {
		t.Errorf("without time: %+v", r)
	}
}

func TestAPIOnLambdaRequiresTheToken(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.secret(t, i.name+"/api-token", "s3cret")
	api := i.function(t, "api", "api-token")
	ask := func(path, token string) string {
		event := fmt.Sprintf(`{"version":"2.0","rawPath":%q,"rawQueryString":"",`+
			`"headers":{"host":"x.lambda-url.us-east-1.on.aws","authorization":"Bearer %s"},
			"requestContext":{"domainName":"x.lambda-url.us-east-1.on.aws","http":{"method":"GET","path":%q,`+
			`"protocol":"HTTP/1.1","sourceIp":"198.51.100.7"}},"isBase64Encoded":false}`, path, token, path)
		return api.Invoke(t, event, time.Minute).Body
	}
	for what, c := range map[string]struct{ path, token, want string }{
		"runs":            {"/v1/runs", "s3cret", `{"runs":[],"more":0,`},
		"a wrong token":   {"/v1/runs", "guess", `"statusCode":401`},
		"no token":        {"/v1/runs", "", `"statusCode":401`},
		"health":          {"/healthz", "", `"statusCode":200`},
		"an unknown path": {"/v1/nothing", "s3cret", `"statusCode":404`},
	} {
		if got := ask(c.path, c.token); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %s", what, got, c.want)
		}
	}
}

// create creates a document of the installation.
func (i installation) create(t *testing.T, key string, v any) {
	t.Helper()
	if _, err := i.docs.Create(t.Context(), key, record.Encode(v)); err != nil {
		t.Fatal(err)
	}
}

// mark returns the mark of a worker.
func (i installation) mark(t *testing.T, worker string) (m record.WorkerMark) {
	t.Helper()
	d, err := i.docs.Get(t.Context(), record.WorkerKey(worker))
	if err == nil {
		err = record.Decode(d.Value, &m, d.Key)
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		t.Fatal(err)
	}
	return m
}

// interrupt starts the function interrupt. All instances are in the group.
func (i installation) interrupt(t *testing.T, group string) *LocalFunction {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, `<DescribeAutoScalingInstancesResponse><DescribeAutoScalingInstancesResult>`+
			`<AutoScalingInstances><member><InstanceId>%s</InstanceId>
			<AutoScalingGroupName>%s</AutoScalingGroupName></member></AutoScalingInstances>`+
			`</DescribeAutoScalingInstancesResult></DescribeAutoScalingInstancesResponse>`,
			r.FormValue("InstanceIds.member.1"), group)
	}))
	t.Cleanup(server.Close)
	return StartFunction(t, "interrupt", append(i.Environment(i.Deployment(i.name, prefix), server.URL),
		"AWS_ENDPOINT_URL_AUTO_SCALING="+server.URL)...)
}

// Events of other deployments' machines change nothing.
func TestInterruptOnLambdaRecordsTheEndOfAMachine(t *testing.T) {
	t.Parallel()
	i := install(t)
	const silent, preempted, other = "i-0123456789abcdef0", "i-0123456789abcdef1", "i-0123456789abcdef2"
	interrupt := i.interrupt(t, i.name+"-default")
	scaling := func(kind, group, instance string) string {
		return fmt.Sprintf(`{"source":"aws.autoscaling","detail-type":%q,"time":%q,"detail":{"AutoScalingGroupName":%q,`+
			`"EC2InstanceId":%q,"StatusMessage":"no capacity",
			"Cause":"At some time instance x was taken out of service in response to a user request,`+
			` shrinking the capacity from 2 to 1."}}`, kind, time.Now().UTC().Format(time.RFC3339), group, instance)
	}
	const ended = "EC2 Instance Terminate Successful"
	for _, event := range []string{
		scaling(ended, i.name+"-default", silent), scaling(ended, i.name+"-default", silent), scaling(ended, "others", other),
		`{"source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning","detail":{"instance-id":"` + preempted +
			`"}}`, scaling(ended, i.name+"-default", preempted),
		scaling("EC2 Instance Launch Unsuccessful", i.name+"-default", ""),
	} {
		if r := interrupt.Invoke(t, event, time.Minute); r.Failed {
			t.Errorf("%s: %s", event, r.Body)
		}
	}
	for instance, want := range map[string]string{silent: "before any worker sent a heartbeat", preempted: "",
		other: "nothing"} {
		var b health.Heartbeat
		d, err := i.docs.Get(t.Context(), record.HeartbeatKey(instance))
		if err == nil {
			err = record.Decode(d.Value, &b, d.Key)
		}
		if want == "nothing" != fault.Is(err, fault.NotFound) || err == nil &&
			(b.Pool != "default" || (b.FailureReason == "") != (want == "") || !strings.Contains(b.FailureReason, want)) {
			t.Errorf("%s: %+v, %v", instance, b, err)
		}
	}
	if d, err := i.docs.Get(t.Context(), record.FleetKey("default")); err != nil ||
		!strings.Contains(string(d.Value), "no capacity") {
		t.Errorf("the fleet document is %s, %v", d.Value, err)
	}
}

// A notice marks only the workers of its machine.
func TestInterruptOnLambdaDrainsAMachine(t *testing.T) {
	t.Parallel()
	i := install(t)
	const mine, other = "i-0123456789abcdef0", "i-0123456789abcdef1"
	i.create(t, record.HeartbeatKey("w1"), health.Heartbeat{Schema: 1, Worker: "w1", State: health.Ready, Instance: mine})
	i.create(t, record.HeartbeatKey("w2"), health.Heartbeat{Schema: 1, Worker: "w2", State: health.Ready, Instance: other})
	interrupt := i.interrupt(t, "others")
	for _, event := range []string{`{}`, `[]`,
		`{"source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning",` +
			`"detail":{"instance-id":"i-0fffffffffffffff0"}}`,
		`{"source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning","detail":{"instance-id":"` + mine +
			`","instance-action":"terminate"}}`,
		`{"source":"aws.ec2","detail-type":"EC2 Instance State-change Notification","detail":{"instance-id":"` + mine +
			`","state":"shutting-down"}}`} {
		if r := interrupt.Invoke(t, event, time.Minute); r.Failed {
			t.Errorf("%s: %s", event, r.Body)
		}
	}
	if m := i.mark(t, "w1"); m.DrainReason != "spot interruption" || m.Sequence != 1 {
		t.Errorf("the machine's worker has the mark %+v", m)
	}
	if m := i.mark(t, "w2"); m.DrainReason != "" {
		t.Errorf("another machine's worker has the mark %+v", m)
	}
}

// The schedule finds a dead worker, an unplanned run and an ended run, of which the
// messages were lost.
func TestReclaimOnLambdaFindsLostWork(t *testing.T) {
	t.Parallel()
	i := install(t)
	long := time.Now().Add(-10 * time.Minute)
	lost, ended := identity.UploadRun(i.Bucket, "prompts/x.jsonl", "1"),
		identity.UploadRun(i.Bucket, "prompts/x.jsonl", "2")
	for _, id := range []identity.RunID{lost, ended} {
		i.create(t, record.ManifestKey(id), record.Manifest{Schema: 1, Run: id, Kind: "batch"})
		i.create(t, record.OpenRunKey(id), record.OpenRun{Schema: 1, Run: id, At: long})
	}
	s := engine.New(ended)
	s.Phase = engine.Completed
	i.create(t, record.CoordinatorKey(ended), s)
	i.create(t, record.HeartbeatKey("w1"), health.Heartbeat{Schema: 1, Worker: "w1", State: health.Ready,
		At: long, DueAt: long})
	paused := identity.UploadRun(i.Bucket, "prompts/x.jsonl", "3") // an open run, so that heartbeats are read
	p := engine.New(paused)
	p.Phase, p.SavedAt = engine.Paused, time.Now()
	i.create(t, record.OpenRunKey(paused), record.OpenRun{Schema: 1, Run: paused, At: long})
	i.create(t, record.CoordinatorKey(paused), p)

	reclaim := i.function(t, "reclaim")
	for range 2 {
		if r := reclaim.Invoke(t, `{"version":"0","source":"aws.scheduler"}`, time.Minute); r.Failed {
			t.Fatal(r.Body)
		}
	}
	if calls := i.called.take(); len(calls) != 1 || calls[0].event != (events.RunSubmitted{Run: string(lost)}) {
		t.Errorf("the calls are %+v", calls)
	}
	if _, err := i.docs.Get(t.Context(), record.OpenRunKey(ended)); !fault.Is(err, fault.NotFound) {
		t.Errorf("the ended run is still recorded as open: %v", err)
	}
	entries, err := i.docs.List(t.Context(), record.EndedPrefix, "", 10)
	if err != nil || len(entries) != 2 || entries[0].Key != record.RunIndexKey {
		t.Errorf("the index of ended runs has %d documents, %v", len(entries), err)
	} else if id, _ := record.RunOfEntry(entries[1].Key); id != ended {
		t.Errorf("the index of ended runs has %s", id)
	}
	if i.mark(t, "w1").Failed.IsZero() {
		t.Error("the dead worker is not marked")
	}
}

// An invalid task becomes a dead letter at once. A failing one is left to Lambda to
// retry.
func TestPlanOnLambdaDeadLettersInvalidTasks(t *testing.T) {
	t.Parallel()
	i := install(t)
	plan := i.function(t, "plan")
	body := func(p events.Payload) string {
		b, err := events.Encode(p, events.Meta{Source: "rollout/test", Time: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	id := string(identity.UploadRun(i.Bucket, "prompts/x.jsonl", "1"))
	for event, failed := range map[string]bool{`{"what":1}`: false, body(events.Wakeup{Run: id}): false,
		body(events.RunSubmitted{Run: id}): true} {
		if r := plan.Invoke(t, event, time.Minute); r.Failed != failed {
			t.Errorf("%s: %+v", event, r)
		}
	}
	if dead, err := i.queues.Receive(t.Context(), queue.DeadLetterQueue(host.TaskQueue), 10, time.Minute,
		10*time.Second); err != nil || len(dead) != 2 {
		t.Errorf("%d dead letters, %v", len(dead), err)
	}
}
