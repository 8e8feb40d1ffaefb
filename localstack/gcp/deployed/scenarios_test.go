package deployed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"rollout/functions/reclaim"
	"rollout/localstack/gcp/fakemetadata"
	"rollout/localstack/gcp/iam"
	"rollout/localstack/scenarios"
	"rollout/shared/blob"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/gcp"
	"rollout/shared/host"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// scenario is something that an installation does. run returns nil once it has happened.
type scenario struct {
	name string
	run  func(ctx context.Context, f *fixture) error
}

// uses together need every grant of a plan.
var uses = []scenario{
	{"a batch", answerBatch},
	{"an end that people are told", tell},
	{"the timer", func(ctx context.Context, f *fixture) error { return f.Tick(ctx) }},
	{"a poisoned message", poison},
	{"a preempted machine", preempt},
	{"the API", callAPI},
	{"a viewer", view},
	{"an operator", operate},
	{"a machine that boots", boot},
	{"machines that come and leave", rentMachines},
	{"large objects", putLargeObjects},
	{"a run of many shards", answerManyShards},
	{"a rollout", learn},
	{"a scan of what was lost", scan},
	{"messages that are never handled", neverHandled},
}

// upload uploads some prompts and returns their run.
func (f *fixture) upload(ctx context.Context) (identity.RunID, error) {
	return f.uploadMany(ctx, 20, "[shard]\nitems = 10\n")
}

// uploadMany uploads n prompts with more config of the run, and returns the run.
func (f *fixture) uploadMany(ctx context.Context, n int, config string) (identity.RunID, error) {
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, `{"id":"p-%d","prompt":"Wörter %d"}`+"\n", i, i)
	}
	return f.put(ctx, config, lines.String())
}

// put uploads lines, and before them the config of their run, and returns the run.
func (f *fixture) put(ctx context.Context, config, lines string) (identity.RunID, error) {
	f.serial++
	key := fmt.Sprintf("prompts/upload-%d.jsonl", f.serial)
	if _, err := f.Ports.Blobs.Put(ctx, strings.TrimSuffix(key, "jsonl")+"toml",
		strings.NewReader("schema_version = 1\n"+config), blob.PutOptions{}); err != nil {
		return "", err
	}
	info, err := f.Ports.Blobs.Put(ctx, key, strings.NewReader(lines), blob.PutOptions{})
	return identity.UploadRun(f.Deployment.Bucket, key, info.Version), err
}

// leave ends the worker, so that a run's work waits.
func (f *fixture) leave() {
	if f.machine != nil {
		f.machine.kill()
		f.machine = nil
	}
}

// exists waits until a document exists.
func (f *fixture) exists(ctx context.Context, key string) error {
	return until(ctx, "the document "+key+" exists", func() (bool, error) { return found(f.Ports.Docs.Get(ctx, key)) })
}

// found reports whether a read found something.
func found[T any](_ T, err error) (bool, error) {
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// ended waits until a run has ended, and its state says so.
func (f *fixture) ended(ctx context.Context, id identity.RunID) error {
	return until(ctx, "the run "+string(id)+" has ended", func() (bool, error) {
		var s run.State
		_, _, err := host.Load(ctx, f.Ports.Docs, record.CoordinatorKey(id), &s)
		return s.Phase.Ended(), err
	})
}

// answerBatch answers a run in a bucket that no installation has taken yet.
func answerBatch(ctx context.Context, f *fixture) error {
	err := f.Ports.Blobs.Delete(ctx, record.OwnerKey, "")
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	id, err := f.upload(ctx)
	if err == nil {
		err = f.ended(ctx, id)
	}
	if err == nil {
		f.answered = id
	}
	return err
}

// tell answers a run, and waits until the topic and the webhook have the event of its end.
func tell(ctx context.Context, f *fixture) error {
	id, err := f.upload(ctx)
	if err != nil {
		return err
	}
	if err := f.ended(ctx, id); err != nil {
		return err
	}
	subject := record.RunSubject(id)
	if err := until(ctx, "the end is told", func() (bool, error) {
		var n record.Notifications
		_, _, err := host.Load(ctx, f.Ports.Docs, record.NotifyKey(subject), &n)
		return n.Sequence > 0 && len(n.Pending) == 0, err
	}); err != nil {
		return err
	}
	if got := f.hook.Of(subject); !slices.Equal(got, []string{"run.completed"}) {
		return fmt.Errorf("the webhook was told %v", got)
	}
	return f.hook.Problem()
}

// answerManyShards answers a run whose files are written in segments.
func answerManyShards(ctx context.Context, f *fixture) error {
	id, err := f.uploadMany(ctx, 260, "[shard]\nitems = 1\n[dedupe]\nenabled = true\n")
	if err != nil {
		return err
	}
	return f.ended(ctx, id)
}

// learn answers a rollout of two batches: coordinate asks for the plan of the second.
func learn(ctx context.Context, f *fixture) error {
	toml, err := os.ReadFile(filepath.Join(repository, "examples", "refunds.toml"))
	if err != nil {
		return err
	}
	tickets, err := os.ReadFile(filepath.Join(repository, "examples", "refunds.jsonl"))
	if err != nil {
		return err
	}
	config, _, _ := strings.Cut(string(toml), "\n[reflection]")
	config = strings.NewReplacer("schema_version = 1\n", "", "epochs = 3", "epochs = 1", "samples = 4", "samples = 1",
		"rollout_batch_size = 60", "rollout_batch_size = 10").Replace(config)
	id, err := f.put(ctx, config, strings.Join(strings.SplitAfter(string(tickets), "\n")[:20], ""))
	if err != nil {
		return err
	}
	return f.ended(ctx, id)
}

// unplanned uploads a run, and loses the event by which it is planned.
func (f *fixture) unplanned(ctx context.Context) (identity.RunID, error) {
	plan := f.Services[host.PlanFunction]
	plan.Lose(true)
	defer plan.Lose(false)
	before := plan.Lost()
	id, err := f.upload(ctx)
	if err != nil {
		return id, err
	}
	if err := f.exists(ctx, record.ManifestKey(id)); err != nil { // its event is sent after it
		return id, err
	}
	name := f.resource("subscriptions", host.PlanFunction)
	return id, until(ctx, "the event is lost", func() (bool, error) {
		return plan.Lost() > before && f.PubSub.Waiting(name) == 0, nil
	})
}

// topic returns the full name of a topic.
func (f *fixture) topic(name string) string { return f.resource("topics", name) }

func (f *fixture) resource(kind, name string) string {
	return "projects/" + f.project + "/" + kind + "/" + f.Deployment.Cloud.PubSub.Prefix + name
}

// deadLetters waits until the dead letters of a queue have these bodies, and takes them.
func (f *fixture) deadLetters(ctx context.Context, of string, bodies map[string]bool) error {
	name := f.resource("subscriptions", queue.DeadLetterQueue(of))
	return until(ctx, fmt.Sprintf("the dead letters of %s have %d more", of, len(bodies)), func() (bool, error) {
		got, err := f.PubSub.Pull(ctx, &pb.PullRequest{Subscription: name, MaxMessages: 100})
		if err != nil || len(got.ReceivedMessages) == 0 {
			return len(bodies) == 0, err
		}
		var ids []string
		for _, m := range got.ReceivedMessages {
			delete(bodies, string(m.Message.Data))
			ids = append(ids, m.AckId)
		}
		_, err = f.PubSub.Acknowledge(ctx, &pb.AcknowledgeRequest{Subscription: name, AckIds: ids})
		return len(bodies) == 0, err
	})
}

// poison publishes what nobody can read, and waits for the dead letters.
func poison(ctx context.Context, f *fixture) error {
	f.serial++
	expected := map[string]map[string]bool{}
	for topic, dead := range map[string]string{
		host.PlanFunction: host.TaskQueue, host.SubmitFunction: host.TaskQueue, host.FinalizeFunction: host.TaskQueue,
		host.CoordinateQueue: host.CoordinateQueue, host.WorkQueue("small"): host.WorkQueue("small"),
		host.UrgentQueue("small"): host.UrgentQueue("small"),
	} {
		body := fmt.Sprintf("poison %d of %s", f.serial, topic)
		f.Publish(f.topic(topic), []byte(body), nil)
		if expected[dead] == nil {
			expected[dead] = map[string]bool{}
		}
		expected[dead][body] = true
	}
	for dead, bodies := range expected {
		if err := f.deadLetters(ctx, dead, bodies); err != nil {
			return err
		}
	}
	return nil
}

// neverHandled lets all functions fail, and gives pulled messages back, until Pub/Sub moves
// them to the dead letters.
func neverHandled(ctx context.Context, f *fixture) error {
	f.leave() // it would handle them
	for _, s := range f.Services {
		s.Fail(true)
		defer s.Fail(false)
	}
	f.serial++
	expected := map[string]map[string]bool{}
	for _, s := range f.Plan.Of("google_pubsub_subscription") {
		topic := strings.TrimPrefix(s.Values.Text("name"), f.Deployment.Cloud.PubSub.Prefix)
		dead := s.Values.Block("dead_letter_policy").Text("dead_letter_topic")
		if dead == "" {
			continue
		}
		dead = strings.TrimSuffix(strings.TrimPrefix(dead, f.topic("")), "-dead")
		body := fmt.Sprintf("message %d of %s", f.serial, topic)
		f.Publish(s.Values.Text("topic"), []byte(body), nil)
		if expected[dead] == nil {
			expected[dead] = map[string]bool{}
		}
		expected[dead][body] = true
		if s.Values.Block("push_config").Text("push_endpoint") == "" {
			if err := f.giveBack(ctx, f.resource("subscriptions", topic)); err != nil {
				return err
			}
		}
	}
	for dead, bodies := range expected {
		if err := f.deadLetters(ctx, dead, bodies); err != nil {
			return err
		}
	}
	return nil
}

// giveBack gives the messages of a subscription back, as often as Pub/Sub delivers them.
func (f *fixture) giveBack(ctx context.Context, subscription string) error {
	for range 2 * queue.MaxReceives {
		got, err := f.PubSub.Pull(ctx, &pb.PullRequest{Subscription: subscription, MaxMessages: 100})
		if err != nil || len(got.ReceivedMessages) == 0 {
			return err
		}
		var ids []string
		for _, m := range got.ReceivedMessages {
			ids = append(ids, m.AckId)
		}
		if _, err = f.PubSub.ModifyAckDeadline(ctx,
			&pb.ModifyAckDeadlineRequest{Subscription: subscription, AckIds: ids}); err != nil {
			return err
		}
	}
	return errors.New("the messages of " + subscription + " come again and again")
}

// beat puts the heartbeat of a worker, and returns the worker.
func (f *fixture) beat(ctx context.Context, at time.Time, instance string) (worker string, err error) {
	f.serial++
	worker = fmt.Sprintf("01JD2ZQ4T5W0M1X9YB7R%06d", f.serial)
	_, err = host.Save(ctx, f.Ports.Docs, record.HeartbeatKey(worker), health.Heartbeat{Schema: 1, Worker: worker,
		Pool: "small", State: health.Ready, At: at, DueAt: at.Add(time.Minute), Instance: instance}, document.Revision(""))
	return worker, err
}

// preempt tells the audit log that a worker's machine is taken back: the worker is to drain.
func preempt(ctx context.Context, f *fixture) error {
	instance := fmt.Sprint(5229353360185600000 + f.serial)
	worker, err := f.beat(ctx, time.Now(), instance)
	if err != nil {
		return err
	}
	f.Audit("compute.instances.preempted", instance)
	return f.exists(ctx, record.WorkerKey(worker))
}

// rentMachines lets each function that may ask for machines do so, and one of the machines
// leave.
func rentMachines(ctx context.Context, f *fixture) error {
	group := f.Plan.Of("google_compute_region_instance_group_manager")[0].Values.Text("name")
	pool, ok := gcp.PoolOfGroup(f.Deployment, group)
	if !ok {
		return errors.New("no pool has the group " + group)
	}
	for _, function := range []string{host.CoordinateFunction, host.ReclaimFunction} {
		want := f.Compute.Size(group) + 1
		account := f.AccountOf(f.Deployment.Cloud.FunctionName(function))
		if err := f.probe(ctx, account, fmt.Sprintf("raise %s %d", pool, want)); err != nil {
			return err
		}
		if got := f.Compute.Size(group); got < want {
			return fmt.Errorf("%s has the size %d, want %d", group, got, want)
		}
	}
	f.Compute.Step()
	machine := f.Compute.Machines()[0]
	token, err := f.signer.Sign(fakemetadata.Claims{
		"aud": gcp.LeaveAudience(f.Deployment.Cloud), "email": gcp.LeaveAccount(f.Deployment.Cloud), "email_verified": true,
		"google": map[string]any{"compute_engine": map[string]any{
			"instance_id": machine.ID, "instance_name": machine.Name, "project_id": f.project}},
	})
	if err != nil {
		return err
	}
	status, err := f.Services[gcp.LeaveFunction].Call(ctx, http.MethodPost, "/", token, `{"token":"`+token+`"}`, nil)
	if err == nil && status != http.StatusNoContent {
		err = fmt.Errorf("the function %s answers %d", gcp.LeaveFunction, status)
	}
	return err
}

// view shows runs, and fetches results.
func view(ctx context.Context, f *fixture) error {
	out := filepath.Join(f.dir, "results.jsonl")
	_ = os.Remove(out) // of an earlier call
	id := string(f.answered)
	for _, arguments := range [][]string{{"status"}, {"status", id}, {"explain", id, "p-1"}, {"results", id, "-o", out}} {
		if err := f.rollout(ctx, viewer, arguments...); err != nil {
			return err
		}
	}
	return nil
}

// operate submits a run and stops it.
func operate(ctx context.Context, f *fixture) error {
	f.serial++
	file := filepath.Join(f.dir, fmt.Sprintf("operator-%d.jsonl", f.serial))
	if err := os.WriteFile(file, []byte(`{"prompt":"Wörter"}`+"\n"), 0o600); err != nil {
		return err
	}
	if err := f.rollout(ctx, operator, "submit", file); err != nil {
		return err
	}
	f.leave()
	id, err := f.upload(ctx)
	if err != nil {
		return err
	}
	if err := f.exists(ctx, record.ManifestKey(id)); err != nil {
		return err
	}
	for _, arguments := range [][]string{{"status", string(id)}, {"stop", string(id)},
		{"results", string(f.answered), "-o", file + ".out"}, {"retry", string(f.answered), "--all"}} {
		if err := f.rollout(ctx, operator, arguments...); err != nil {
			return err
		}
	}
	return nil
}

// machineAccount returns the account of workers.
func (f *fixture) machineAccount() string { return f.AccountOf(f.Deployment.Cloud.Name + "-worker") }

// boot does what machines and the tasks of Cloud Run jobs do before a worker starts: they
// fetch the program, mount the bucket of programs, and read the token of the model's hub.
func boot(ctx context.Context, f *fixture) error {
	for _, o := range f.Plan.Of("google_storage_bucket_object") {
		bucket, name := o.Values.Text("bucket"), o.Values.Text("name")
		if err := f.probe(ctx, f.machineAccount(), "fetch "+bucket+"/"+name); err != nil {
			return err
		}
		if err := f.probe(ctx, f.machineAccount(), "mount "+bucket); err != nil {
			return err
		}
	}
	return f.probe(ctx, f.machineAccount(), "secret hf-token")
}

// putLargeObjects puts large objects with all accounts that may. The driver leaves nothing
// behind.
func putLargeObjects(ctx context.Context, f *fixture) error {
	before, err := f.scratchObjects()
	if err != nil {
		return err
	}
	for _, g := range f.Policy.Grants() {
		member := strings.TrimPrefix(g.Member, "serviceAccount:")
		key := fmt.Sprintf("pending/large-%d", f.serial)
		object := objectName(f.Deployment.Cloud.GCS.Bucket, f.Deployment.Cloud.GCS.Prefix+key)
		if !strings.Contains(g.Address, ".objects[") || !strings.HasSuffix(g.Role, "_objects_create") ||
			!slices.Contains(f.Policy.Missing(iam.Denial{Request: iam.Request{Member: g.Member, Permission: createObject,
				Resource: object}}), g.Address) {
			continue
		}
		f.serial++
		if err := f.probe(ctx, member, "large "+key); err != nil {
			return err
		}
	}
	after, err := f.scratchObjects()
	if err == nil && after > before {
		err = fmt.Errorf("%d objects were left behind", after-before)
	}
	return err
}

// scratchObjects returns how many objects there are that the driver should have removed.
func (f *fixture) scratchObjects() (n int, err error) {
	names, err := f.Storage.Names(f.Deployment.Cloud.GCS.Bucket)
	for _, name := range names {
		if strings.Contains(name, "/.rollout-") {
			n++
		}
	}
	return n, err
}

// scan loses the event of an upload and that of a run, and the worker of a third one. The
// scan of a later hour finds them, and removes the heartbeat of a worker that ended long ago. Of a
// later day it removes what uploads to the API have left behind.
func scan(ctx context.Context, f *fixture) error {
	f.leave()
	waiting, err := f.upload(ctx)
	if err != nil {
		return err
	}
	if err := until(ctx, "the work of a run is sent", func() (bool, error) {
		var s run.State
		_, _, err := host.Load(ctx, f.Ports.Docs, record.CoordinatorKey(waiting), &s)
		return s.NextShard == 2, err
	}); err != nil {
		return err
	}
	unplanned, err := f.unplanned(ctx)
	if err != nil {
		return err
	}
	f.LoseNotifications(true)
	lost, err := f.upload(ctx)
	f.LoseNotifications(false)
	if err != nil {
		return err
	}
	worker, err := f.beat(ctx, time.Now().Add(-3*time.Hour), "")
	if err != nil {
		return err
	}
	if err := reclaim.SweepOrphans(ctx, f.Ports, reclaim.SweepOptions{}); err != nil { // older objects stay
		return err
	}
	expiring := scenarios.ExpiringFile()
	if _, err := host.Save(ctx, f.Ports.Docs, record.FileKey(expiring.ID), expiring, ""); err != nil {
		return err
	}
	orphans := []string{record.FilesPrefix + "file-00000000000000000000000000.jsonl", record.UploadPartKey("u", "p"),
		expiring.Input.Key}
	for _, key := range orphans {
		if _, err := f.Ports.Blobs.Put(ctx, key, strings.NewReader("x"), blob.PutOptions{}); err != nil {
			return err
		}
	}
	// The mark of the last scan for uploads would keep this one from looking again.
	if d, err := f.Ports.Docs.Get(ctx, record.UploadScanKey); err == nil {
		if err := f.Ports.Docs.Delete(ctx, d.Key, d.Revision); err != nil {
			return err
		}
	}
	if err := f.probe(ctx, f.AccountOf(f.Deployment.Cloud.Name+"-reclaim"), "scan"); err != nil {
		return err
	}
	if ok, err := found(f.Ports.Docs.Get(ctx, record.HeartbeatKey(worker))); ok || err != nil {
		return fmt.Errorf("the old heartbeat is there: %v, %w", ok, err)
	}
	for _, key := range []string{record.ManifestKey(lost), record.CoordinatorKey(unplanned)} {
		if err := f.exists(ctx, key); err != nil {
			return err
		}
	}
	for _, key := range orphans {
		if ok, err := found(f.Ports.Blobs.Stat(ctx, key, "")); ok || err != nil {
			return fmt.Errorf("%s is there: %v, %w", key, ok, err)
		}
	}
	if ok, err := found(f.Ports.Docs.Get(ctx, record.FileKey(expiring.ID))); ok || err != nil {
		return fmt.Errorf("the document of an expired file is there: %v, %w", ok, err)
	}
	urgent := f.resource("subscriptions", host.UrgentQueue("small"))
	return until(ctx, "the work is sent again", func() (bool, error) { return f.PubSub.Waiting(urgent) > 0, nil })
}
