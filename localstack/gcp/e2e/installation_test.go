package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"rollout/events"
	"rollout/localstack/gcp/fakecompute"
	"rollout/localstack/gcp/fakefirestore"
	"rollout/localstack/gcp/fakegcs"
	"rollout/localstack/gcp/fakemetadata"
	"rollout/localstack/gcp/fakepubsub"
	"rollout/localstack/gcp/fakesecrets"
	"rollout/localstack/gcp/gateway"
	"rollout/localstack/scenarios"
	"rollout/localstack/subprocess"
	"rollout/shared/config"
	"rollout/shared/gcp"
	"rollout/shared/host"
	"rollout/shared/queue"
)

const (
	bucket = "acme-rollout"
	// key is the key of an upload.
	key = "prompts/x.jsonl"
	// inCloud is the config's table of the cloud, and mockPool that of a pool.
	inCloud = `schema_version = 1
[cloud]
provider = "gcp"
project = "acme-ml"
region = "us-central1"
gcs.bucket = "` + bucket + `"
gcs.prefix = "` + scenarios.Prefix + `"
`
	mockPool = "[[pool]]\nname = \"default\"\nmodel = \"mock\"\n"
)

// installation is a deployed installation: emulators, topics, subscriptions, and the
// processes of its functions.
type installation struct {
	*gcp.Stack // of the test's own process
	firestore  *fakefirestore.Server
	pubsub     *fakepubsub.Server
	storage    *fakegcs.Server
	compute    *fakecompute.Server // without groups, unless the test makes some
	machines   *machines
	signer     *fakemetadata.Signer
	way        *gateway.Gateway
	metadata   string            // of functions
	emulators  map[string]string // variables of the environment
	toml       string            // the config
	addresses  map[string]string // of the functions
	services   []*service
	ticks      atomic.Int64      // calls of the timer that succeeded
	log        *scenarios.Output // what the programs said
}

// faults are those of an installation's emulators.
type faults struct {
	firestore fakefirestore.Faults
	pubsub    fakepubsub.Faults
	storage   *fakegcs.Faults
	bill      *bill            // counts requests; nil counts none
	told      *scenarios.Inbox // of the topic of events; see scenarios.Settings
	webhook   http.Handler
}

// deploy starts an installation without machines until the test ends.
func deploy(t *testing.T) *installation {
	t.Helper()
	return deployConfig(t, faults{}, scenarios.Settings{}.Config())
}

// deployConfig starts an installation until the test ends. more is the config besides
// inCloud. If the test fails, it logs what the programs wrote.
func deployConfig(t *testing.T, f faults, more string) *installation {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: it starts processes, and -short is set")
	}
	if f.webhook != nil {
		more += scenarios.WebhookConfig("https://" + webhookHost + "/events")
	}
	documents, queues := fakefirestore.Options{Faults: f.firestore}, fakepubsub.Options{Faults: f.pubsub,
		Published: func(topic string, m *pb.PubsubMessage) error { return deliver(f.told, topic, m) }}
	if f.bill != nil {
		documents.Stats, queues.Stats, queues.PullWait = f.bill, f.bill, pullWait
	}
	in := &installation{
		firestore: fakefirestore.Start(t, documents),
		pubsub:    fakepubsub.Start(t, queues),
		addresses: map[string]string{},
		toml:      inCloud + more,
		log:       &scenarios.Output{},
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the programs wrote:\n%s", scenarios.End(in.log.String()))
		}
	})
	storage, address, end, err := fakegcs.Start(fakegcs.Options{Faults: f.storage, Notify: in.notify})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	in.storage = storage
	in.storage.MakeBucket(bucket, true)
	in.emulators = map[string]string{gcp.StorageEmulatorVariable: address,
		gcp.FirestoreEmulatorVariable: in.firestore.Address, gcp.PubSubEmulatorVariable: in.pubsub.Address}
	in.startGoogle(t)
	if f.webhook != nil {
		in.startWebhook(t, f.webhook)
	}

	in.openStack(t)
	for _, name := range []string{host.SubmitFunction, host.PlanFunction, host.CoordinateFunction,
		host.FinalizeFunction, host.ReclaimFunction, host.InterruptFunction, gcp.LeaveFunction} {
		in.start(t, name)
		if f.bill != nil {
			in.addresses[name] = f.bill.serve(t, name, in.addresses[name])
		}
	}
	in.createTopics(t)
	return in
}

// opening is held while the environment of this process leads to the emulators of one test.
var opening sync.Mutex

// openStack opens the installation for the test's own process. Clients read where their
// emulators are when they are made.
func (in *installation) openStack(t *testing.T) {
	t.Helper()
	d, err := config.ParseDeployment("rollout.toml", []byte(in.toml))
	if err != nil {
		t.Fatal(err)
	}
	opening.Lock()
	defer opening.Unlock()
	for variable, address := range in.emulators {
		if err := os.Setenv(variable, address); err != nil {
			t.Fatal(err)
		}
		defer os.Unsetenv(variable)
	}
	if in.Stack, err = gcp.OpenStack(t.Context(), d, gcp.StackOptions{}); err != nil {
		t.Fatal(err)
	}
}

// startGoogle starts what programs reach at Google's hosts until the test ends: Compute
// Engine, the keys of identity tokens, and the metadata of functions.
func (in *installation) startGoogle(t *testing.T) {
	t.Helper()
	var err error
	var end func()
	if in.signer, err = fakemetadata.NewSigner(); err != nil {
		t.Fatal(err)
	}
	if in.way, end, err = gateway.Start(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	in.machines = &machines{in: in, t: t, running: map[string]*machine{}}
	in.compute = fakecompute.New(fakecompute.Options{Project: "acme-ml", Region: "us-central1",
		Booted: in.machines.boot, Ended: in.machines.end,
		Deleted: in.machines.delete})
	for host, handler := range map[string]http.Handler{
		"compute.googleapis.com": in.compute, "www.googleapis.com": in.signer,
	} {
		in.lead(t, host, handler)
	}
	_, in.metadata, end, err = fakemetadata.Start(fakemetadata.Instance{Project: "acme-ml", Number: "27"}, in.signer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
}

// lead serves a host of Google's until the test ends, for the installation's programs.
func (in *installation) lead(t *testing.T, host string, handler http.Handler) {
	t.Helper()
	certificate, err := in.way.Certificate(host)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", certificate)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(listener) }() // it ends with Close
	t.Cleanup(func() { _ = server.Close() })
	in.way.Lead(host, listener.Addr().String())
}

// webhookHost is the host of an installation's webhook.
const webhookHost = "hooks.example.com"

// startWebhook serves the webhook, and Secret Manager with the key of its signatures, until
// the test ends.
func (in *installation) startWebhook(t *testing.T, receiver http.Handler) {
	t.Helper()
	in.lead(t, webhookHost, receiver)
	certificate, err := in.way.Certificate("secretmanager.googleapis.com")
	if err != nil {
		t.Fatal(err)
	}
	secrets, end, err := fakesecrets.Start(grpc.Creds(credentials.NewTLS(certificate)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	d, err := config.ParseDeployment("rollout.toml", []byte(in.toml))
	if err != nil {
		t.Fatal(err)
	}
	secrets.Set("acme-ml", d.Cloud.Secrets.Prefix+scenarios.WebhookSecretName, []byte(scenarios.WebhookSecret))
	in.way.Lead("secretmanager.googleapis.com", secrets.Address())
}

// deliver passes what is published to the topic of events on to an inbox, if there is one.
func deliver(to *scenarios.Inbox, topic string, m *pb.PubsubMessage) error {
	if to == nil || !strings.HasSuffix(topic, "-"+gcp.EventsTopic) {
		return nil
	}
	if e, _, err := events.Decode(m.Data); err == nil && m.OrderingKey != e.Subject {
		return status.Errorf(codes.InvalidArgument, "the event of %s has the ordering key %q", e.Subject, m.OrderingKey)
	}
	if !to.Take(m.Data) {
		return status.Error(codes.Unavailable, "the topic takes nothing")
	}
	return nil
}

// service is the process of a function.
type service struct {
	name  string
	port  int // reserved for the process, and for those after it
	cmd   *exec.Cmd
	ended chan error
}

// start starts a function until the test ends, and waits until it answers.
func (in *installation) start(t *testing.T, name string) {
	t.Helper()
	port, release, err := subprocess.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	s := &service{name: name, port: port}
	address := "http://127.0.0.1:" + strconv.Itoa(port)
	in.addresses[name], in.services = address, append(in.services, s)
	in.launch(t, s)
	t.Cleanup(s.kill)
	for {
		response, err := http.Post(address, "application/json", strings.NewReader("{}"))
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode != http.StatusForbidden {
				t.Fatalf("%s answers a stranger with %s", name, response.Status)
			}
			return
		}
		select {
		case err := <-s.ended:
			t.Fatalf("%s ended: %v\n%s", name, err, in.log)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// launch starts the process of a function.
func (in *installation) launch(t *testing.T, s *service) {
	t.Helper()
	s.cmd, s.ended = exec.Command(functions), make(chan error, 1)
	s.cmd.Env = append(in.environment(), "FUNCTION_TARGET="+s.name, "PORT="+strconv.Itoa(s.port), "LOCAL_ONLY=true",
		"GCE_METADATA_HOST="+in.metadata)
	s.cmd.Stdout, s.cmd.Stderr = in.log, in.log
	if err := subprocess.Start(s.cmd); err != nil {
		t.Fatal(err)
	}
	go func(cmd *exec.Cmd, ended chan<- error) {
		ended <- cmd.Wait()
		close(ended)
	}(s.cmd, s.ended)
}

// kill ends the process with SIGKILL.
func (s *service) kill() {
	_ = s.cmd.Process.Kill() // it may have ended
	<-s.ended
}

// environment returns the variables of every process of the installation.
func (in *installation) environment() []string {
	all := []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "TMPDIR=" + os.TempDir(),
		"ROLLOUT_CONFIG=" + in.toml}
	for variable, address := range in.emulators {
		all = append(all, variable+"="+address)
	}
	return append(all, in.way.Environment()...)
}

// createTopics creates what the deployment creates: a topic with a push subscription
// for each function and source of events, and queues that workers pull.
func (in *installation) createTopics(t *testing.T) {
	t.Helper()
	dead := queue.DeadLetterQueue
	for _, name := range []string{dead(host.TaskQueue), dead(host.CoordinateQueue)} {
		in.subscribe(t, name, "", "")
	}
	for _, p := range in.Deployment.Pools {
		for _, name := range []string{host.WorkQueue(p.Name), host.UrgentQueue(p.Name)} {
			in.subscribe(t, dead(name), "", "")
			in.subscribe(t, name, dead(name), "")
		}
	}
	for topic, function := range map[string]string{
		gcp.ObjectsTopic: host.SubmitFunction, host.SubmitFunction: host.SubmitFunction,
		host.PlanFunction: host.PlanFunction, host.FinalizeFunction: host.FinalizeFunction,
		gcp.MachinesTopic: host.InterruptFunction,
	} {
		in.subscribe(t, topic, dead(host.TaskQueue), function)
	}
	in.subscribe(t, host.CoordinateQueue, dead(host.CoordinateQueue), host.CoordinateFunction)
	if _, err := in.pubsub.CreateTopic(t.Context(), &pb.Topic{Name: in.resource("topics", gcp.EventsTopic)}); err != nil {
		t.Fatal(err)
	}
}

// subscribe creates a topic and its subscription. Its messages are pushed to the
// function, if it names one.
func (in *installation) subscribe(t *testing.T, name, dead, function string) {
	t.Helper()
	s := &pb.Subscription{Name: in.resource("subscriptions", name), Topic: in.resource("topics", name),
		AckDeadlineSeconds: 30}
	if dead != "" {
		s.DeadLetterPolicy = &pb.DeadLetterPolicy{DeadLetterTopic: in.resource("topics", dead),
			MaxDeliveryAttempts: queue.MaxReceives}
	}
	if function != "" {
		s.AckDeadlineSeconds = 600
		token := &pb.PushConfig_OidcToken{ServiceAccountEmail: in.Deployment.Cloud.PubSub.PushAccount}
		s.PushConfig = &pb.PushConfig{PushEndpoint: in.addresses[function],
			AuthenticationMethod: &pb.PushConfig_OidcToken_{OidcToken: token}}
	}
	if _, err := in.pubsub.CreateTopic(t.Context(), &pb.Topic{Name: s.Topic}); err != nil {
		t.Fatal(err)
	}
	if _, err := in.pubsub.CreateSubscription(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// resource returns the resource name of a topic or subscription.
func (in *installation) resource(kind, name string) string {
	cloud := in.Deployment.Cloud
	return "projects/" + cloud.Project + "/" + kind + "/" + cloud.PubSub.Prefix + name
}

// notify publishes a bucket's notification, if the object is below the prefix of the
// notification's configuration.
func (in *installation) notify(n fakegcs.Notification) {
	if !strings.HasPrefix(n.Object, scenarios.Prefix+"prompts/") {
		return
	}
	in.announce(n)
}

// announce publishes a notification.
func (in *installation) announce(n fakegcs.Notification) {
	_, err := in.pubsub.Publish(context.Background(), &pb.PublishRequest{
		Topic:    in.resource("topics", gcp.ObjectsTopic),
		Messages: []*pb.PubsubMessage{{Data: n.ObjectDescription, Attributes: n.Attributes()}},
	})
	if err != nil {
		fmt.Fprintln(in.log, "notification:", err)
	}
}

// tick calls the timer's function until ctx ends, more often than Cloud Scheduler.
func (in *installation) tick(ctx context.Context) {
	timer := time.NewTicker(2 * time.Second)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, in.addresses[host.ReclaimFunction], http.NoBody)
		if err != nil {
			return
		}
		account := in.Deployment.Cloud.PubSub.PushAccount
		r.Header.Set("Authorization", "Bearer "+fakepubsub.Token(account, "", time.Now()))
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			continue
		}
		if _ = response.Body.Close(); response.StatusCode != http.StatusNoContent {
			fmt.Fprintln(in.log, "the timer is answered with", response.Status)
			continue
		}
		in.ticks.Add(1)
	}
}
