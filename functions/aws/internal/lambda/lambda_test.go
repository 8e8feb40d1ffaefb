package lambda

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	lambdaevents "github.com/aws/aws-lambda-go/events"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"rollout/events"
	"rollout/shared/aws"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/memory"
	"rollout/shared/queue"
)

func ports() host.Ports { return host.Ports{Log: slog.New(slog.DiscardHandler)} }

// bucket is the bucket of the tests, with characters in its prefix that S3 encodes.
var bucket = config.S3{Bucket: "b", Prefix: "team a/+/"}

// Every key is decoded correctly, relative to the bucket's prefix, from both
// sources.
func FuzzKeysAreDecodedOnce(f *testing.F) {
	for _, key := range []string{"prompts/a b.jsonl", "a+b", "a%2Bb", "100%", "a&b=c?", "日本 語", "%25", `quo"te`} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		key = strings.ToValidUTF8(key, "")
		raw, err := json.Marshal(bucket.Prefix + key)
		if err != nil || key == "" {
			t.Skip()
		}
		for source, event := range map[string]string{
			"S3": fmt.Sprintf(`{"Records":[{"eventSource":"aws:s3","eventName":"ObjectCreated:CompleteMultipartUpload",`+
				`"s3":{"bucket":{"name":"b"},"object":{"key":%q,"size":7,"versionId":"v"}}}]}`,
				url.QueryEscape(bucket.Prefix+key)),
			"EventBridge": fmt.Sprintf(`{"source":"aws.s3","detail-type":"Object Created",`+
				`"detail":{"bucket":{"name":"b"},"object":{"key":%s,"size":7,"version-id":"v"}}}`, raw),
		} {
			got, err := ReadObjects(bucket, []byte(event))
			want := events.ObjectCreated{Bucket: "b", Key: key, Version: "v", Size: 7}
			if err != nil || len(got) != 1 || got[0].ObjectCreated != want {
				t.Errorf("%s: %q is decoded as %+v, %v", source, key, got, err)
			}
		}
	})
}

// Events about objects of other installations are ignored. Events of the product
// have keys relative to the prefix already.
func TestReadObjectsReturnsOnlyObjectsOfTheInstallation(t *testing.T) {
	t.Parallel()
	own := func(p events.Payload) string {
		b, err := events.Encode(p, events.Meta{Source: "rollout/test", Time: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	s3 := func(bucket, key, version string) string {
		return fmt.Sprintf(`{"Records":[{"eventSource":"aws:s3","eventName":"ObjectCreated:Put",`+
			`"s3":{"bucket":{"name":%q},"object":{"key":%q,"versionId":%q}}}]}`, bucket, key, version)
	}
	const key = "team+a/%2B/prompts/x.jsonl"
	mine := events.ObjectCreated{Bucket: "b", Key: "prompts/x.jsonl", Version: "v"}
	for name, c := range map[string]struct {
		event string
		want  []events.ObjectCreated
		kind  fault.Kind
	}{
		"below the prefix":               {s3("b", key, "v"), []events.ObjectCreated{mine}, 0},
		"outside the prefix":             {s3("b", "prompts/x.jsonl", "v"), nil, 0},
		"prefix itself":                  {s3("b", "team+a/%2B/", "v"), nil, 0},
		"another bucket":                 {s3("c", key, "v"), nil, 0},
		"no version":                     {s3("b", key, ""), nil, fault.Invalid},
		"unversioned bucket":             {s3("b", key, "null"), nil, fault.Invalid},
		"product's event":                {own(mine), []events.ObjectCreated{mine}, 0},
		"product's, of another bucket":   {own(events.ObjectCreated{Bucket: "c", Key: mine.Key, Version: "v"}), nil, 0},
		"product's, for another purpose": {own(events.Finalize{Run: "01JD2ZQ4T5W0M1X9YB7R3K8CVE"}), nil, fault.Invalid},
		"unknown type of event":          {`{"specversion":"1.0","type":"x"}`, nil, fault.Invalid},
	} {
		got, err := ReadObjects(bucket, []byte(c.event))
		var objects []events.ObjectCreated
		for _, o := range got {
			objects = append(objects, o.ObjectCreated)
		}
		if !slices.Equal(objects, c.want) || (err != nil) != (c.kind != 0) || err != nil && !fault.Is(err, c.kind) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// Look-alikes of S3 may leave keys in their notifications as they are.
func TestKeysThatAreNotEncodedAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in  []string // the bucket
		raw string   // the key of the event
		// want is the key of the event that is handled.
		want string
	}{
		"encoded": {[]string{"prompts/a b+c.jsonl"},
			"team+a/%2B/prompts/a+b%2Bc.jsonl", "prompts/a b+c.jsonl"},
		"not encoded": {[]string{"prompts/a b+c.jsonl"},
			"team a/+/prompts/a b+c.jsonl", "prompts/a b+c.jsonl"},
		"not encoded, with a percent": {[]string{"prompts/100% sure.jsonl"},
			"team a/+/prompts/100% sure.jsonl", "prompts/100% sure.jsonl"},
		"not encoded, like an encoded": {[]string{"prompts/a%2Bb.jsonl"},
			"team a/+/prompts/a%2Bb.jsonl", "prompts/a%2Bb.jsonl"},
		"both exist":    {[]string{"prompts/a+b", "prompts/a b"}, "team+a/%2B/prompts/a+b", "prompts/a b"},
		"deleted since": {nil, "team+a/%2B/prompts/a+b", "prompts/a b"},
	} {
		p := ports()
		store := memory.NewBucket(clock.System{})
		p.Blobs = store
		version := "v"
		for _, key := range c.in {
			info, err := store.Put(t.Context(), key, strings.NewReader("{}"), blob.PutOptions{})
			if err != nil {
				t.Fatal(err)
			}
			version = info.Version
		}
		var got []string
		f := Objects(p, bucket, func(_ context.Context, e events.ObjectCreated) error {
			got = append(got, e.Key)
			return nil
		}, nil, nil)
		err := f(t.Context(), json.RawMessage(fmt.Sprintf(`{"Records":[{"eventSource":"aws:s3","eventName":`+
			`"ObjectCreated:Put","s3":{"bucket":{"name":"b"},"object":{"key":%q,"versionId":%q}}}]}`, c.raw, version)))
		if err != nil || len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: handled %q, %v; want %q", name, got, err, c.want)
		}
	}
}

func FuzzReadObjects(f *testing.F) {
	for _, event := range []string{
		`{}`, `[]`, `null`, `{"Records":null}`, `{"Records":[{}]}`, `{"Records":{}}`,
		`{"Records":[{"eventSource":"aws:s3","eventName":"ObjectRemoved:Delete"}]}`,
	} {
		f.Add(event)
	}
	f.Fuzz(func(t *testing.T, event string) {
		created, err := ReadObjects(config.S3{}, []byte(event))
		if err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%v", err)
		}
		for _, c := range created {
			if c.Version == "" {
				t.Errorf("%+v can't be pinned", c)
			}
		}
	})
}

// A failure of one object does not stop the others.
func TestEveryObjectOfAnEventIsHandled(t *testing.T) {
	t.Parallel()
	record := func(key string) string {
		return fmt.Sprintf(`{"eventSource":"aws:s3","eventName":"ObjectCreated:Put",`+
			`"s3":{"bucket":{"name":"b"},"object":{"key":%q,"versionId":"v"}}}`, key)
	}
	var taken []string
	f := Objects(ports(), config.S3{Bucket: "b"}, func(_ context.Context, e events.ObjectCreated) error {
		taken = append(taken, e.Key)
		if e.Key == "bad" {
			return fault.New(fault.Unavailable, "not now")
		}
		return nil
	}, nil, nil)
	err := f(t.Context(), json.RawMessage(`{"Records":[`+record("bad")+","+record("%zz")+","+record("good")+`]}`))
	if strings.Join(taken, " ") != "bad %zz good" || err == nil ||
		!strings.Contains(err.Error(), "submit the object bad: not now") {
		t.Errorf("handled %v, %v", taken, err)
	}
}

func TestMessagesReportsThoseThatAreNotDone(t *testing.T) {
	t.Parallel()
	var got []queue.Message
	f := Messages(ports(), func(_ context.Context, ms []queue.Message) (done []string) {
		got = ms
		for _, m := range ms {
			if string(m.Body) != "later" {
				done = append(done, m.Receipt)
			}
		}
		return done
	})
	encoding := "base64"
	event := lambdaevents.SQSEvent{Records: []lambdaevents.SQSMessage{
		{MessageId: "1", ReceiptHandle: "r1", Body: "now", Attributes: map[string]string{"ApproximateReceiveCount": "3"}},
		{MessageId: "2", ReceiptHandle: "r2", Body: "later"},
		{MessageId: "3", ReceiptHandle: "r3", Body: "AAE=", MessageAttributes: map[string]lambdaevents.SQSMessageAttribute{
			aws.EncodingAttribute: {StringValue: &encoding, DataType: "String"},
		}},
	}}
	out, err := f(t.Context(), event)
	text, _ := json.Marshal(out)
	if err != nil || string(text) != `{"batchItemFailures":[{"itemIdentifier":"2"}]}` {
		t.Errorf("%s, %v", text, err)
	}
	if got[0].Receives != 3 || got[1].Receives != 1 || string(got[2].Body) != "\x00\x01" {
		t.Errorf("got %+v", got)
	}
	out, err = f(t.Context(), lambdaevents.SQSEvent{})
	if text, _ := json.Marshal(out); err != nil || string(text) != `{"batchItemFailures":[]}` {
		t.Errorf("without messages: %s, %v", text, err)
	}
}

// I8: what is sent because of one message continues the chain of that message, and
// not those of its neighbours in the batch. A message that no function sent begins a
// new chain.
func TestEachMessageOfABatchHasItsOwnChain(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "any")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "any")
	t.Setenv("AWS_LAMBDA_FUNCTION_NAME", "acme-coordinate")
	t.Setenv("_X_AMZN_TRACE_ID", "Root=1-a;Lineage=1:a87bd80c:12")
	sent := map[string]string{} // trace headers, by the invoked function
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent[strings.Split(r.URL.Path, "/")[3]] = r.Header.Get("X-Amzn-Trace-Id")
		w.WriteHeader(http.StatusAccepted)
	}))
	defer server.Close()
	cfg, err := aws.LoadConfig(t.Context(), slog.New(slog.DiscardHandler), awsconfig.WithRegion("eu-west-1"),
		awsconfig.WithBaseEndpoint(server.URL))
	if err != nil {
		t.Fatal(err)
	}
	functions := aws.NewFunctions(cfg, aws.FunctionOptions{})
	f := Messages(ports(), func(ctx context.Context, ms []queue.Message) (done []string) {
		for _, m := range ms {
			if err := functions.Invoke(ContinueChain(ctx, m), string(m.Body), [][]byte{[]byte("{}")}); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	trace := func(header string) map[string]string { return map[string]string{"AWSTraceHeader": header} }
	if _, err := f(t.Context(), lambdaevents.SQSEvent{Records: []lambdaevents.SQSMessage{
		{MessageId: "1", Body: "of-plan", Attributes: trace("Root=1-b;Lineage=1:a87bd80c:2")},
		{MessageId: "2", Body: "of-worker"},
		{MessageId: "3", Body: "of-finalize", Attributes: trace("Root=1-c;Lineage=1:a87bd80c:12")},
	}}); err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"of-plan": "Root=1-b;Lineage=1:a87bd80c:2", "of-worker": "",
		"of-finalize": "Root=1-c;Lineage=1:a87bd80c:12"}; !maps.Equal(sent, want) {
		t.Errorf("the headers are %v, want %v", sent, want)
	}
}

func TestContextEndsBeforeLambdaEndsTheFunction(t *testing.T) {
	t.Parallel()
	for limit, want := range map[time.Duration]time.Duration{time.Minute: margin, time.Second: time.Second / 4} {
		deadline := time.Now().Add(limit)
		outer, cancel := context.WithDeadline(t.Context(), deadline)
		ctx, end := withMargin(outer)
		at, ok := ctx.Deadline()
		if left := deadline.Sub(at); !ok || left > want || left < want*9/10 {
			t.Errorf("with %v: it ends %v before, want %v", limit, left, want)
		}
		end()
		cancel()
	}
	if ctx, end := withMargin(t.Context()); ctx.Err() != nil {
		t.Error("without a deadline it ends at once")
	} else {
		end()
	}
}

func TestOpenReturnsAllProblemsOfTheConfig(t *testing.T) {
	t.Parallel()
	for config, wants := range map[string][]string{
		"":                     {ConfigVariable + " is not set"},
		"schema_version = 1\n": {"no installation on AWS"},
		"schema_version = 1\n[cloud]\nprovider = \"aws\"\nregion = \"nowhere\"\n" +
			"[cloud.s3]\nbuckt = 7\n[health]\nself_fence_timeout = \"90s\"\n": {"buckt", "region", "bucket", "self_fence"},
	} {
		_, err := Open(t.Context(), "submit", func(string) string { return config })
		if !fault.Is(err, fault.Invalid) {
			t.Fatalf("%q: %v", config, err)
		}
		for _, part := range append(wants, "open the function submit", "deploy the stack again") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the message lacks %s: %v", part, err)
			}
		}
	}
}

func TestOpenOpensTheStackOfTheConfig(t *testing.T) {
	t.Parallel()
	const toml = "schema_version = 1\n[cloud]\nprovider = \"aws\"\nregion = \"eu-west-1\"\n[cloud.s3]\nbucket = \"acme\"\n"
	lookup := func(name string) string { return map[string]string{ConfigVariable: toml}[name] }
	s, err := Open(t.Context(), "submit", lookup)
	if err != nil {
		t.Fatal(err)
	}
	if s.Deployment.Bucket != "acme" || s.AWS.Region != "eu-west-1" || s.Ports.Source != "submit" {
		t.Errorf("%s in %s, of %s", s.Deployment.Bucket, s.AWS.Region, s.Ports.Source)
	}
}

// invocation encodes an event with which Invocations are called.
func invocation(t *testing.T, p events.Payload) json.RawMessage {
	t.Helper()
	b, err := events.Encode(p, events.Meta{Source: "rollout/test", Time: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// An event that can't be handled is dead-lettered at once. Other errors are
// returned, so that Lambda tries again.
func TestInvocationsDeadLettersInvalidEvents(t *testing.T) {
	t.Parallel()
	finalize := events.Finalize{Run: "01JD2ZQ4T5W0M1X9YB7R3K8CVE"}
	for name, c := range map[string]struct {
		event  json.RawMessage
		fails  error
		dead   bool
		failed bool
	}{
		"handled":              {invocation(t, finalize), nil, false, false},
		"not an event":         {json.RawMessage(`{"what":1}`), nil, true, false},
		"for another function": {invocation(t, finalize), fault.New(fault.Invalid, "not for plan"), true, false},
		"store is unavailable": {invocation(t, finalize), fault.New(fault.Unavailable, "away"), false, true},
		"run does not exist":   {invocation(t, finalize), fault.New(fault.NotFound, "no manifest"), false, true},
	} {
		p := ports()
		p.Queues = memory.NewQueues(clock.System{})
		err := Invocations(p, func(_ context.Context, got events.Payload) error {
			if got != finalize {
				t.Errorf("%s: it got %v", name, got)
			}
			return c.fails
		})(t.Context(), c.event)
		dead, _ := p.Queues.Receive(t.Context(), queue.DeadLetterQueue(host.TaskQueue), 10, time.Minute, 0)
		if (err != nil) != c.failed || (len(dead) == 1 && string(dead[0].Body) == string(c.event)) != c.dead {
			t.Errorf("%s: %v, dead letters %v", name, err, dead)
		}
	}
}

// I8: an event that causes itself again is dead-lettered after the maximal number
// of hops.
func TestEventThatCausesItselfIsDeadLettered(t *testing.T) {
	t.Parallel()
	p := ports()
	p.Queues, p.Clock, p.Source = memory.NewQueues(clock.System{}), clock.System{}, "test"
	handled := 0
	f := Invocations(p, func(ctx context.Context, e events.Payload) error {
		handled++
		return p.Send(ctx, host.TaskQueue, e)
	})
	next := invocation(t, events.Finalize{Run: "01JD2ZQ4T5W0M1X9YB7R3K8CVE"})
	for range 100 {
		if err := f(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		ms, err := p.Queues.Receive(t.Context(), host.TaskQueue, 1, time.Minute, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(ms) == 0 {
			break
		}
		next = ms[0].Body
	}
	dead, _ := p.Queues.Receive(t.Context(), queue.DeadLetterQueue(host.TaskQueue), 10, time.Minute, 0)
	if handled != events.MaxHops+1 || len(dead) != 1 {
		t.Errorf("handled %d times, %d dead letters", handled, len(dead))
	}
}

func TestErrorOfTheDeadLetterQueueIsReturned(t *testing.T) {
	t.Parallel()
	p := ports()
	p.Queues = memory.NewQueues(clock.System{})
	large := json.RawMessage(`"` + strings.Repeat("x", queue.MaxBody) + `"`)
	err := Invocations(p, func(context.Context, events.Payload) error { return nil })(t.Context(), large)
	if err == nil {
		t.Error("an event that could not be dead-lettered is lost")
	}
}

func TestReadNotice(t *testing.T) {
	t.Parallel()
	const id = "i-0123456789abcdef0"
	event := func(source, kind, detail string) string {
		return fmt.Sprintf(`{"version":"0","source":%q,"detail-type":%q,"time":"2026-01-02T03:04:05Z","detail":%s}`,
			source, kind, detail)
	}
	state := func(s string) string {
		return event("aws.ec2", "EC2 Instance State-change Notification", fmt.Sprintf(`{"instance-id":%q,"state":%q}`, id, s))
	}
	ended := func(cause string) string {
		return event("aws.autoscaling", "EC2 Instance Terminate Successful", fmt.Sprintf(`{"StatusCode":"InProgress",
			"AutoScalingGroupName":"rollout-small","ActivityId":"8","Description":"Terminating EC2 instance: %[1]s",
			"StartTime":"2026-01-02T03:04:00Z","EndTime":"2026-01-02T03:04:05Z","EC2InstanceId":%[1]q,"StatusMessage":"",
			"Details":{"Subnet ID":"s","Availability Zone":"z"},"Cause":%[2]q}`, id, cause))
	}
	spot := func(detail string) string { return event("aws.ec2", "EC2 Spot Instance Interruption Warning", detail) }
	scaling := func(kind, detail string) string { return event("aws.autoscaling", kind, detail) }
	const (
		group   = "rollout-small"
		outOf   = "At 2026-01-02T03:03:59Z an instance was taken out of service in response to "
		itself  = "At 2026-01-02T03:03:59Z instance " + id + " was taken out of service in response to "
		surplus = "At 2026-01-02T03:00:00Z a user request explicitly set group desired capacity changing the desired " +
			"capacity from 2 to 1.  " + outOf + "a difference between desired and actual capacity, shrinking the capacity " +
			"from 2 to 1.  At 2026-01-02T03:03:59Z instance " + id + " was selected for termination."
	)
	none := cloud.MachineNotice{}
	notice := func(k cloud.NoticeKind, reason string) cloud.MachineNotice {
		return cloud.MachineNotice{Kind: k, Machine: id, Reason: reason}
	}
	terminated := func(reason string) cloud.MachineNotice {
		return cloud.MachineNotice{Kind: cloud.MachineTerminated, Machine: id, Fleet: group, Reason: reason}
	}
	launchFailed := func(reason string) cloud.MachineNotice {
		return cloud.MachineNotice{Kind: cloud.LaunchFailed, Fleet: group, Reason: reason}
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	short := strings.Repeat("x", 511)
	for name, c := range map[string]struct {
		event string
		want  cloud.MachineNotice // the zero value for an event that is not a notice
		bad   bool
	}{
		"spot interruption": {spot(`{"instance-id":"` + id + `","instance-action":"terminate"}`),
			notice(cloud.MachinePreempted, "spot interruption"), false},
		"rebalance": {event("aws.ec2", "EC2 Instance Rebalance Recommendation", `{"instance-id":"`+id+`"}`),
			notice(cloud.MachineAtRisk, "rebalance recommendation"), false},
		"shutting down": {state("shutting-down"),
			notice(cloud.MachineStopping, "the instance is shutting-down"), false},
		"stopping":      {state("stopping"), notice(cloud.MachineStopping, "the instance is stopping"), false},
		"terminated":    {state("terminated"), notice(cloud.MachineStopping, "the instance is terminated"), false},
		"starting":      {state("pending"), none, false},
		"running":       {state("running"), none, false},
		"unknown state": {state("dreaming"), none, false},
		"another service": {event("aws.ecs", "EC2 Spot Instance Interruption Warning", `{"instance-id":"`+id+`"}`),
			none, false},
		"another event":            {event("aws.ec2", "EBS Volume Notification", `{}`), none, false},
		"no instance":              {spot(`{}`), none, true},
		"hostile instance":         {spot(`{"instance-id":"beat/../i-01234567"}`), none, true},
		"instance of another type": {spot(`{"instance-id":7}`), none, true},
		"not an event":             {`[]`, none, true},

		"left its group": {ended(itself + "a user request, shrinking the capacity from 2 to 1."),
			terminated("user request, shrinking the capacity from 2 to 1."), false},
		"left to be replaced": {ended(itself + "a user request."), terminated("user request."), false},
		"went down": {ended(outOf + "a EC2 health check indicating it has been terminated or stopped."),
			terminated("EC2 health check indicating it has been terminated or stopped."), false},
		"hung": {ended(outOf + "an EC2 instance status checks failure."),
			terminated("EC2 instance status checks failure."), false},
		"disk failed": {ended(outOf + "EBS volume health check failure."),
			terminated("EBS volume health check failure."), false},
		"surplus":         {ended(surplus), none, false},
		"rebalanced":      {ended(outOf + "an EC2 instance rebalance recommendation."), none, false},
		"without a cause": {ended(""), none, false},
		"end of an invalid instance": {scaling("EC2 Instance Terminate Successful",
			`{"EC2InstanceId":"x","Cause":"taken out of service in response to a user request"}`), none, true},
		"launched": {scaling("EC2 Instance Launch Successful", `{"EC2InstanceId":"`+id+`"}`), none, false},
		"launch failed": {scaling("EC2 Instance Launch Unsuccessful",
			`{"StatusCode":"Failed","AutoScalingGroupName":"rollout-small","EC2InstanceId":"",`+
				`"StatusMessage":"Max spot instance count exceeded","Cause":"At …"}`),
			launchFailed("Max spot instance count exceeded"), false},
		"launch failed, long reason": {scaling("EC2 Instance Launch Unsuccessful",
			`{"AutoScalingGroupName":"rollout-small","StatusMessage":"`+short+`ä"}`), launchFailed(short), false},
	} {
		n, ok, err := ReadNotice([]byte(c.event))
		if c.want.Kind != "" {
			c.want.At = at
		}
		if ok != (c.want.Kind != "") || (err != nil) != c.bad || n != c.want {
			t.Errorf("%s: %+v, %v, %v", name, n, ok, err)
		}
		passed := 0
		handle := func(context.Context, cloud.MachineNotice) error { passed++; return nil }
		err = Notices(ports(), handle)(t.Context(), json.RawMessage(c.event))
		if err != nil || passed == 1 != ok {
			t.Errorf("%s: handled %d times, %v", name, passed, err)
		}
	}
	failing := Notices(ports(), func(context.Context, cloud.MachineNotice) error {
		return fault.New(fault.Unavailable, "away")
	})
	if err := failing(t.Context(), json.RawMessage(state("stopping"))); !fault.Is(err, fault.Unavailable) {
		t.Errorf("with an unavailable store: %v", err)
	}
}

func FuzzNotices(f *testing.F) {
	for _, event := range []string{
		`{}`, `[]`, `null`, `{"source":"aws.ec2","detail":null}`,
		`{"source":"aws.ec2","detail-type":"EC2 Instance Rebalance Recommendation",` +
			`"detail":{"instance-id":"i-0123456789abcdef0"}}`,
		`{"source":"aws.autoscaling","detail-type":"EC2 Instance Terminate Successful",` +
			`"detail":{"EC2InstanceId":"i-0123456789abcdef0","Cause":"taken out of service in response to a user request"}}`,
		`{"source":"aws.autoscaling","detail-type":"EC2 Instance Launch Unsuccessful","detail":{}}`,
	} {
		f.Add(event)
	}
	f.Fuzz(func(t *testing.T, event string) {
		n, ok, err := ReadNotice([]byte(event))
		if err != nil && (ok || !fault.Is(err, fault.Invalid)) {
			t.Errorf("%v, %v", ok, err)
		}
		named := n.Kind == cloud.LaunchFailed || instanceID.MatchString(n.Machine)
		if ok != (n != cloud.MachineNotice{}) || ok && !named || len(n.Reason) > longestReason {
			t.Errorf("%+v, %v", n, ok)
		}
	})
}

func TestBatchIsPassedOn(t *testing.T) {
	t.Parallel()
	want := events.BatchRequested{Run: "01JD2ZQ4T5W0M1X9YB7R3K8CVE"}
	var got events.BatchRequested
	f := Objects(ports(), config.S3{Bucket: "b"}, nil, nil, func(_ context.Context, e events.BatchRequested) error {
		got = e
		return nil
	})
	if err := f(t.Context(), invocation(t, want)); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRetryOfARunIsPassedOn(t *testing.T) {
	t.Parallel()
	want := events.RetryRequested{Run: "01JD2ZQ4T5W0M1X9YB7R3K8CVE", Parent: "01JD2ZQ4T5W0M1X9YB7R3K8CVF",
		Only: []string{"failed"}}
	var got events.RetryRequested
	f := Objects(ports(), config.S3{Bucket: "b"}, nil, func(_ context.Context, e events.RetryRequested) error {
		got = e
		return nil
	}, nil)
	event, err := events.Encode(want, events.Meta{Source: "rollout/api", Time: time.Unix(1, 0)})
	if err != nil {
		t.Fatal(err)
	}
	if err := f(t.Context(), event); err != nil || got.Run != want.Run || got.Parent != want.Parent ||
		strings.Join(got.Only, " ") != "failed" {
		t.Errorf("%+v, %v", got, err)
	}
}
