package fakeaws

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	lambdaevents "github.com/aws/aws-lambda-go/events"
	runtime "github.com/aws/aws-lambda-go/lambda"
	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"rollout/localstack/subprocess"
	"rollout/shared/aws"
	deployment "rollout/shared/config"
)

// TestMain runs a function if Lambda's runtime started the process, or the process
// of an instance. Else it runs the tests.
func TestMain(m *testing.M) {
	name := os.Getenv("AWS_LAMBDA_FUNCTION_NAME")
	switch {
	case os.Getenv("FAKEAWS_TEST_INSTANCE") != "":
		time.Sleep(time.Hour) // until it is killed
	case strings.HasSuffix(name, "-coordinate"):
		runtime.Start(batches)
	case name != "":
		runtime.Start(single)
	}
	subprocess.EndWithGoTest()
	os.Exit(m.Run())
}

// single is a function that sends its event to the queue "seen". It fails or exits
// if the event says so, and sends the event "around" to the queue "coordinate".
func single(ctx context.Context, event json.RawMessage) (json.RawMessage, error) {
	if strings.Contains(string(event), "exit") {
		os.Exit(3)
	}
	if strings.Contains(string(event), "fail") {
		return nil, errors.New("failed on request")
	}
	if strings.Contains(string(event), "Scheduled Event") {
		return event, nil
	}
	if string(event) == `"around"` {
		return event, send(ctx, "coordinate", "around")
	}
	return event, send(ctx, "seen", string(event))
}

// batches is the function of a mapped queue. It sends "again" to its own queue,
// invokes plan for "around" in the chain of that message, reports "bad" as failed, and
// sends other messages to the queue "seen".
func batches(ctx context.Context, e lambdaevents.SQSEvent) (lambdaevents.SQSEventResponse, error) {
	out := lambdaevents.SQSEventResponse{BatchItemFailures: []lambdaevents.SQSBatchItemFailure{}}
	for _, r := range e.Records {
		switch r.Body {
		case "again":
			if err := send(ctx, "coordinate", "again"); err != nil {
				return out, err
			}
		case "around":
			if err := around(aws.ContinueChain(ctx, r.Attributes[aws.TraceAttribute])); err != nil {
				return out, err
			}
		case "bad":
			out.BatchItemFailures = append(out.BatchItemFailures, lambdaevents.SQSBatchItemFailure{ItemIdentifier: r.MessageId})
		default:
			if err := send(ctx, "seen", r.Body); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// around invokes plan with the event "around".
func around(ctx context.Context) error {
	d, cfg, err := sdk(ctx)
	if err != nil {
		return err
	}
	return aws.NewFunctions(cfg, aws.FunctionOptions{}).Invoke(ctx, d.Cloud.FunctionName("plan"),
		[][]byte{[]byte(`"around"`)})
}

// sdk is the deployment and the configuration of the SDK, as the product loads them.
func sdk(ctx context.Context) (d deployment.Deployment, cfg awssdk.Config, err error) {
	if d, err = deployment.ParseDeployment("", []byte(os.Getenv("ROLLOUT_CONFIG"))); err != nil {
		return d, cfg, err
	}
	cfg, err = aws.LoadConfig(ctx, slog.New(slog.DiscardHandler), config.WithSharedConfigFiles(nil),
		config.WithSharedCredentialsFiles(nil))
	return d, cfg, err
}

// send sends a message with the SDK, as the product does.
func send(ctx context.Context, queue, text string) error {
	d, cfg, err := sdk(ctx)
	if err != nil {
		return err
	}
	queue = d.Cloud.SQS.Prefix + queue
	client := sqs.NewFromConfig(cfg)
	at, err := client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &queue})
	if err != nil {
		return err
	}
	_, err = client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: at.QueueUrl, MessageBody: &text})
	return err
}

// testCloud is an account whose functions are this test program.
func testCloud(t *testing.T, change func(*Options)) *Cloud {
	t.Helper()
	backend, end, err := StartKumo()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Backend: backend, Programs: t.TempDir(), Minute: 50 * time.Millisecond, Timeout: 20 * time.Second,
		BatchWindow: 100 * time.Millisecond,
		// All emulators of this process share their names.
		Config: fmt.Sprintf("schema_version = 1\n[cloud]\nprovider = 'aws'\nregion = 'us-east-1'\n"+
			"s3.bucket = 'the-bucket-%[1]s'\nsqs.prefix = 'q%[1]s-'\n", strings.ToLower(rand.Text()[:8]))}
	for _, name := range functions {
		if err := os.MkdirAll(filepath.Join(o.Programs, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(self, filepath.Join(o.Programs, name, "bootstrap")); err != nil {
			t.Fatal(err)
		}
	}
	if change != nil {
		change(&o)
	}
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	for _, name := range []string{"coordinate", "seen", "tasks-dead"} {
		if err := c.sqs("CreateQueue", map[string]any{"QueueName": c.at.SQS.Prefix + name}, nil); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// receive waits for a message in a queue.
func (c *Cloud) receive(t *testing.T, queue string) string {
	t.Helper()
	at := c.queueURL(c.at.SQS.Prefix + queue)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		var got struct{ Messages []message }
		if err := c.sqs("ReceiveMessage", map[string]any{"QueueUrl": at, "WaitTimeSeconds": 1, "VisibilityTimeout": 600},
			&got); err != nil {
			t.Fatal(err)
		}
		if len(got.Messages) > 0 {
			return got.Messages[0].Body
		}
	}
	t.Fatalf("no message arrived in %s; the calls are %+v", queue, c.Calls())
	return ""
}

const patience = 4 * time.Minute

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("this did not happen within %s: %s", patience, what)
		}
	}
}

// post sends a POST request to the account.
func (c *Cloud) post(t *testing.T, path, body string, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

// A failing invocation is tried three times, also if its process ends, and then
// becomes a dead letter.
func TestAsynchronousInvocationsAreRetried(t *testing.T) {
	t.Parallel()
	c := testCloud(t, nil)
	for _, event := range []string{`{"is":"fine"}`, `{"do":"fail"}`, `{"do":"exit"}`} {
		if answer := c.post(t, functionsPath+"rollout-plan/invocations", event, "X-Amz-Invocation-Type",
			"Event"); answer.StatusCode != http.StatusAccepted {
			t.Fatalf("the answer is %s", answer.Status)
		}
	}
	if got := c.receive(t, "seen"); got != `{"is":"fine"}` {
		t.Errorf("the function got %s", got)
	}
	dead := c.receive(t, "tasks-dead") + c.receive(t, "tasks-dead")
	if !strings.Contains(dead, `"requestPayload":{"do":"fail"}`) ||
		!strings.Contains(dead, `"requestPayload":{"do":"exit"}`) || !strings.Contains(dead, "RetriesExhausted") {
		t.Errorf("the dead letters are %s", dead)
	}
	eventually(t, "seven invocations have ended", func() bool { return c.Calls()["plan"].Count == 7 })
	if calls := c.Calls()["plan"]; calls.Failed != 6 {
		t.Errorf("the calls are %+v, want 6 failures", calls)
	}
	if answer := c.post(t, functionsPath+"rollout-nothing/invocations", `{}`, "X-Amz-Invocation-Type",
		"Event"); answer.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown function is answered with %s", answer.Status)
	}
}

// The SDK passes the chain on, and the mapping finds it by the message.
func TestChainOfMoreThan16InvocationsIsCut(t *testing.T) {
	t.Parallel()
	c := testCloud(t, nil)
	c.Start()
	if err := c.send(c.at.SQS.Prefix+"coordinate", []byte("again")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the chain is cut", func() bool { return c.Calls()["coordinate"].LoopsBlocked > 0 })
	if calls := c.Calls()["coordinate"]; calls.Count != longestChain || calls.LongestChain != longestChain+1 {
		t.Errorf("%+v", calls)
	}
}

// A loop of two functions is cut, though the function of the queue continues the chain
// of each message: the other function counts.
func TestLoopThroughContinuedChainsIsCut(t *testing.T) {
	t.Parallel()
	c := testCloud(t, nil)
	c.Start()
	if err := c.send(c.at.SQS.Prefix+"coordinate", []byte("around")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the loop is cut", func() bool { return c.Calls()["coordinate"].LoopsBlocked > 0 })
	if calls := c.Calls()["plan"]; calls.Count != longestChain || calls.LongestChain != longestChain {
		t.Errorf("%+v", calls)
	}
}

func TestMappingReturnsReportedMessages(t *testing.T) {
	t.Parallel()
	c := testCloud(t, func(o *Options) { o.Timeout = 500 * time.Millisecond })
	c.Start()
	for _, body := range []string{"good", "bad"} {
		if err := c.send(c.at.SQS.Prefix+"coordinate", []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.receive(t, "seen"); got != "good" {
		t.Errorf("%s", got)
	}
	eventually(t, "the reported message comes again", func() bool { return c.Calls()["coordinate"].Count >= 2 })
}

// Keys are encoded, and objects elsewhere are not announced.
func TestNewObjectsAreAnnouncedToSubmit(t *testing.T) {
	t.Parallel()
	c := testCloud(t, func(o *Options) { o.Events.Copies = 3 })
	for _, made := range []struct{ path, body string }{{"", ""},
		{"?versioning", "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"}} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, c.options.Backend+"/"+c.at.S3.Bucket+made.path,
			strings.NewReader(made.body))
		if answer := c.internalRequest(r); answer.Code != http.StatusOK {
			t.Fatalf("%s: %s", made.path, answer.Body)
		}
	}
	put := func(key string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut,
			c.URL+"/"+c.at.S3.Bucket+(&url.URL{Path: "/" + key}).EscapedPath(), strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Expect", "100-continue") // as the SDK sends before two megabytes
		answer, err := http.DefaultClient.Do(r)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", answer, err)
		}
		_ = answer.Body.Close()
	}
	put("work/x.jsonl")
	put("runs/x/completions.jsonl")
	put("prompts/a b+c&d%25 日.jsonl")
	for range 3 {
		got := c.receive(t, "seen")
		if !strings.Contains(got, `"key":"prompts/a+b%2Bc%26d%2525+%E6%97%A5.jsonl"`) || !strings.Contains(got, `"size":2`) {
			t.Errorf("the event is %s", got)
		}
	}
	eventually(t, "three events are handled", func() bool { return c.Calls()["submit"].Count == 3 })
}

// A group starts missing instances, replaces lost ones, and shrinks with an instance
// that ends itself.
func TestGroupKeepsItsDesiredSize(t *testing.T) {
	t.Parallel()
	c := testCloud(t, nil)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c.Groups.Make("rollout-default", 3, func(*Instance) *exec.Cmd {
		cmd := exec.Command(self)
		cmd.Env = []string{"FAKEAWS_TEST_INSTANCE=1"}
		return cmd
	})
	act := func(action string, arguments ...string) *http.Response {
		form := url.Values{"Action": {action}}
		for i := 0; i < len(arguments); i += 2 {
			form.Set(arguments[i], arguments[i+1])
		}
		return c.post(t, "/", form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
	}
	if answer := act("SetDesiredCapacity", "AutoScalingGroupName", "rollout-default", "DesiredCapacity",
		"4"); answer.StatusCode != http.StatusBadRequest {
		t.Errorf("a size above the maximum is answered with %s", answer.Status)
	}
	if answer := act("SetDesiredCapacity", "AutoScalingGroupName", "rollout-default", "DesiredCapacity",
		"2"); answer.StatusCode != http.StatusOK {
		t.Errorf("%s", answer.Status)
	}
	first := c.Groups.Instances("rollout-default")
	if len(first) != 2 {
		t.Fatalf("%d instances", len(first))
	}
	c.Groups.Interrupt(first[0], 0)
	<-first[0].Ended()
	eventually(t, "another takes its place", func() bool {
		now := c.Groups.Instances("rollout-default")
		return len(now) == 2 && now[1].ID != first[0].ID && now[1].ID != first[1].ID
	})
	if answer := act("TerminateInstanceInAutoScalingGroup", "InstanceId", first[1].ID, "ShouldDecrementDesiredCapacity",
		"true"); answer.StatusCode != http.StatusOK {
		t.Errorf("%s", answer.Status)
	}
	if desired, peak, alive := c.Groups.Size("rollout-default"); desired != 1 || peak != 2 || alive != 1 {
		t.Errorf("desired %d, at most %d, alive %d", desired, peak, alive)
	}
	answer := act("DescribeAutoScalingGroups", "AutoScalingGroupNames.member.1", "rollout-default")
	text := make([]byte, 4096)
	n, _ := answer.Body.Read(text)
	if !strings.Contains(string(text[:n]), "<DesiredCapacity>1</DesiredCapacity>") {
		t.Errorf("%s", text[:n])
	}
}

func TestLineageIsParsedAsItIsWritten(t *testing.T) {
	t.Parallel()
	l := readLineage("Root=1-5759e988-bd862e3fe1be46a994272793;Parent=x;Sampled=1;Lineage=a87bd80c:1%7C68fd508a:5")
	l.add("plan")
	l.add("plan")
	if got := readLineage(url.PathEscape(l.header())).length(); got != 8 ||
		fmt.Sprint(readLineage("nonsense")) != "map[]" {
		t.Errorf("%d, %s", got, l.header())
	}
}
