package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/firestore/apiv1/firestorepb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"

	"rollout/functions/reclaim"
	"rollout/localstack/fakellm"
	"rollout/localstack/gcp/fakepubsub"
	"rollout/localstack/scenarios"
	"rollout/localstack/subprocess"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/ownership"
	"rollout/shared/prices"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// measureCost makes TestCost run; `make cost` sets it.
var measureCost = flag.Bool("cost", false, "count requests of a run and of idle minutes, and price them")

// listPrices are list prices of us-central1 in US dollars, without taxes, discounts and free
// tiers. Sources: cloud.google.com/{firestore,storage,run,pubsub,scheduler}/pricing and
// cloud.google.com/stackdriver/pricing, as of 2025-11.
var listPrices = map[string]float64{
	writes: listed.Unit(writes), reads: listed.Unit(reads), deletes: listed.Unit(deletes),
	classA: listed.Unit(classA), classB: listed.Unit(classB),
	pubsubKB:    listed.Unit(pubsubKB), // each request counts as 1 KB at least
	invocations: listed.Unit(invocations), cpuSeconds: listed.Unit(cpuSeconds), gibSeconds: listed.Unit(gibSeconds),
	scheduler: 0.10, alert: 0.10, // a month
}

// listed are the prices by which summaries of runs count.
var listed = prices.Of(config.ProviderGCP)

// Positions of the bill.
const (
	writes      = prices.FirestoreWrites
	reads       = prices.FirestoreReads
	deletes     = prices.FirestoreDeletes
	classA      = prices.StorageClassA
	classB      = prices.StorageClassB
	pubsubKB    = prices.PubSubKB
	invocations = prices.CloudRunCalls
	cpuSeconds  = prices.CloudRunCPU
	gibSeconds  = prices.CloudRunMemory
	scheduler   = "Scheduler jobs"
	alert       = "alert conditions"
)

// pullWait is how long a pull waits in Pub/Sub: longer than workers ask for.
const pullWait = time.Minute

// bill counts what an installation is billed for.
type bill struct {
	mu sync.Mutex
	counts
	active map[string]int // requests of each function that are served now
	since  map[string]time.Time
}

// counts are counted units by position. Periodic ones are those that workers cause by time and
// not by work: heartbeats, looks at marks and controls, and pulls that found nothing.
type counts struct {
	work, periodic map[string]float64
	queueRequests  float64            // of the work
	documents      map[string]float64 // reads and writes of documents, such as "read beat"
	billed         map[string]float64 // seconds of each function
}

func newCounts() counts {
	return counts{work: map[string]float64{}, periodic: map[string]float64{}, documents: map[string]float64{},
		billed: map[string]float64{}}
}

func newBill() *bill {
	return &bill{counts: newCounts(), active: map[string]int{}, since: map[string]time.Time{}}
}

// take returns what was counted since the last call.
func (b *bill) take() counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.counts
	b.counts = newCounts()
	return out
}

// periodicKinds are the documents that workers read and write by time.
var periodicKinds = []string{"beat", "worker", "control", "share", "limit"}

// kindOf returns the first part of the key of a document by its name in the database.
func kindOf(document string) string {
	name := strings.TrimPrefix(path.Base(document), "l")
	if name == path.Base(document) && len(name) > 3 {
		name = name[3:] // of a hashed name: h3f
	}
	kind, _, _ := strings.Cut(name, `."`)
	return kind
}

func (b *bill) add(position, kind string, units float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.documents[verbs[position]+" "+kind] += units
	if slices.Contains(periodicKinds, kind) {
		b.periodic[position] += units
		return
	}
	b.work[position] += units
}

// verbs are what the positions of documents do.
var verbs = map[string]string{reads: "read", writes: "write", deletes: "delete"}

// TagRPC and the others make the bill a stats.Handler of the emulators.
func (b *bill) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (b *bill) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (b *bill) HandleConn(context.Context, stats.ConnStats)                       {}

// HandleRPC counts a request or an answer; see stats.Handler.
func (b *bill) HandleRPC(_ context.Context, s stats.RPCStats) {
	switch s := s.(type) {
	case *stats.InPayload:
		b.request(s.Payload)
	case *stats.OutPayload:
		b.answer(s.Payload)
	}
}

func (b *bill) request(payload any) {
	switch r := payload.(type) {
	case *firestorepb.CommitRequest:
		for _, w := range r.Writes {
			if name := w.GetDelete(); name != "" {
				b.add(deletes, kindOf(name), 1)
			} else {
				b.add(writes, kindOf(w.GetUpdate().GetName()), 1)
			}
		}
	case *firestorepb.BatchGetDocumentsRequest:
		for _, name := range r.Documents {
			b.add(reads, kindOf(name), 1)
		}
	case *firestorepb.RunQueryRequest:
		b.add(reads, "", 1) // an empty query costs a read; the answers are counted beside
	case *pubsubpb.PublishRequest:
		b.message(kilobytes(r), true)
	case *pubsubpb.AcknowledgeRequest, *pubsubpb.ModifyAckDeadlineRequest:
		b.message(0, true) // they are free
	}
}

func (b *bill) answer(payload any) {
	switch r := payload.(type) {
	case *firestorepb.RunQueryResponse:
		if d := r.GetDocument(); d != nil {
			b.add(reads, kindOf(d.Name), 1)
		}
	case *pubsubpb.PullResponse:
		b.message(kilobytes(r), len(r.ReceivedMessages) > 0)
	}
}

// message counts a request to Pub/Sub. Pulls that found nothing are periodic.
func (b *bill) message(kb float64, work bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !work {
		b.periodic[pubsubKB] += kb
		return
	}
	b.work[pubsubKB] += kb
	b.queueRequests++
}

func kilobytes(m proto.Message) float64 { return math.Max(1, float64(proto.Size(m))/1000) }

// memoryOf is the memory of the functions in GiB, as infra/gcp/locals.tf has it.
var memoryOf = map[string]float64{host.SubmitFunction: 0.5, host.PlanFunction: 2, host.CoordinateFunction: 1,
	host.FinalizeFunction: 2, host.ReclaimFunction: 0.5, host.InterruptFunction: 0.5}

// serve leads requests to a function and counts them, and the time in which the instance
// serves any: that is billed, in steps of 100 ms.
func (b *bill) serve(t *testing.T, name, address string) string {
	to, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		if b.active[name] == 0 {
			b.since[name] = time.Now()
		}
		b.active[name]++
		b.work[invocations]++
		if name != host.ReclaimFunction { // Pub/Sub pushes a message
			b.work[pubsubKB] += math.Max(1, float64(r.ContentLength)/1000)
			b.queueRequests++
		}
		b.mu.Unlock()
		proxy.ServeHTTP(w, r)
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.active[name]--; b.active[name] == 0 {
			billed := math.Ceil(time.Since(b.since[name]).Seconds()*10) / 10
			b.work[cpuSeconds] += billed
			b.billed[name] += billed
			b.work[gibSeconds] += billed * memoryOf[name]
		}
	}))
	t.Cleanup(front.Close)
	return front.URL
}

// storageRequests returns the requests of Cloud Storage since before, by class, and the counts now.
func (in *installation) storageRequests(before map[string]float64) (since, now map[string]float64) {
	now = map[string]float64{}
	for kind, class := range map[string]string{"upload": classA, "compose": classA, "rewrite": classA, "list": classA,
		"read": classB, "stat": classB} {
		now[class] += float64(in.storage.Requests(kind))
	}
	since = map[string]float64{}
	for class, n := range now {
		since[class] = n - before[class]
	}
	return since, now
}

// price sums units at list prices, and logs each position.
func price(t *testing.T, title string, units map[string]float64) (dollars float64) {
	t.Helper()
	var text strings.Builder
	for _, position := range slices.Sorted(maps.Keys(units)) {
		if n := units[position]; n > 0 {
			dollars += n * listPrices[position]
			fmt.Fprintf(&text, "\n  %-24s %14.2f  $%.4f", position, n, n*listPrices[position])
		}
	}
	t.Logf("%s: $%.4f%s", title, dollars, text.String())
	return dollars
}

func scale(units map[string]float64, by float64) map[string]float64 {
	out := map[string]float64{}
	for position, n := range units {
		out[position] = n * by
	}
	return out
}

func sum(a, b map[string]float64) map[string]float64 {
	out := maps.Clone(a)
	for position, n := range b {
		out[position] += n
	}
	return out
}

// mostForMonth is the bound of an idle month in US dollars, mostApart that of the difference between
// what the summaries of all workloads bill for requests and functions and what was counted, as a part
// of it.
const (
	mostForMonth = 1.0
	mostApart    = 0.10
)

// workload is a run, and how fast it is answered.
type workload struct {
	name              string
	samples           int
	million           bool    // it is cut as a run of a million such samples is
	workers, inFlight int     // each with so many requests of 200 ms in flight
	most              float64 // US dollars for a million samples
	writes, requests  float64 // most document writes and queue requests of a shard
}

// workloads are runs on machines of 25 samples a second. With few machines each shard is alone:
// it is claimed, committed and counted by writes of its own, and its message and its event are
// each published, delivered and acknowledged. With many, a step of coordinate serves several.
// A million samples in one run are allowed $0.06; in sixty runs of 64 shards they cost more,
// as their shards are smaller and each run has some requests of its own. Few machines come
// first: heartbeats of workers that have ended are read for an hour.
var workloads = []workload{
	{"a million on few machines", 64 * 512, true, 4, 5, 0.06, 3.2, 5},
	{"small runs on few machines", 64 * 256, false, 4, 5, 0.09, 3.2, 5},
	{"a million on many machines", 256 * 256, true, 26, 5, 0.06, 2.8, 5},
}

// Runs and idle minutes, priced: a million samples, with all that the workers that answer them
// ask for by time, an idle month, and the requests of a shard are within their bounds. Machines
// and traffic out of Google Cloud are not included.
func TestCost(t *testing.T) {
	if !*measureCost {
		t.Skip("SKIPPED: it counts requests for minutes; run make cost")
	}
	b := newBill()
	in := deployConfig(t, faults{bill: b}, mockPool+"price = 0.25\n") // so that machine time counts in the bill
	llm, err := fakellm.New(fakellm.Config{Model: "mock", Latency: 200 * time.Millisecond, Spread: 0.5, Tokens: 120})
	if err != nil {
		t.Fatal(err)
	}
	engine := httptest.NewServer(llm)
	defer engine.Close()
	counted, billed := 0.0, 0.0
	for _, w := range workloads {
		c, s := in.costWork(t, b, w, engine.URL+"/v1")
		counted, billed = counted+c, billed+s
	}
	apart := math.Abs(billed-counted) / counted
	t.Logf("difference between what is billed and what is counted: %.3f, allowed are %.2f", apart, mostApart)
	if apart > mostApart {
		t.Errorf("the summaries bill $%.5f for requests and functions, counted are $%.5f, allowed are %.0f %% of "+
			"difference: correct the counts in shared/prices", billed, counted, 100*mostApart)
	}
	in.costIdle(t, b)
}

// costWork prices a workload. It returns the dollars of its run: those of all that was counted, and
// those that the run's summary has for requests and functions.
func (in *installation) costWork(t *testing.T, b *bill, w workload, engine string) (counted, billed float64) {
	t.Helper()
	b.take()
	_, stored := in.storageRequests(nil)
	stop := in.costWorkers(t, w.workers, engine, w.inFlight)
	id, seconds := in.costRun(t, w)
	stop()
	objects, _ := in.storageRequests(stored)
	objects[classA] -= 2 // the user's own uploads
	c, summary, samples := b.take(), in.summary(t, id), float64(w.samples)
	shards := float64(summary.Shards)
	t.Logf("%s: %.0f samples in %.0f shards by %d workers in %.0f s, %.1f a second each", w.name, samples, shards,
		w.workers, seconds, samples/seconds/float64(w.workers))
	t.Logf("seconds of functions: %v; documents: %v", c.billed, c.documents)
	million := price(t, "the work for a million samples", scale(sum(c.work, objects), 1e6/samples)) +
		price(t, "what the workers ask for by time", scale(c.periodic, 1e6/samples))
	counted, billed = million*samples/1e6, summary.Cost.Functions+summary.Cost.Storage
	t.Logf("this run: counted $%.5f, billed by its summary $%.5f", counted, billed)
	for _, bound := range []struct {
		what        string
		have, allow float64
	}{
		{"dollars for a million samples", million, w.most},
		{"document writes of a shard", (c.documents["write shard"] + c.documents["write coordinator"]) / shards, w.writes},
		{"queue requests of a shard", c.queueRequests / shards, w.requests},
	} {
		t.Logf("%s: %.4f, allowed are %.2f", bound.what, bound.have, bound.allow)
		if bound.have > bound.allow {
			t.Errorf("%s: %s: %.4f, allowed are %.2f", w.name, bound.what, bound.have, bound.allow)
		}
	}
	return counted, billed
}

// costIdle prices a month of idle minutes.
func (in *installation) costIdle(t *testing.T, b *bill) {
	t.Helper()
	const minutes = 5
	scenarios.Eventually(t, "the end of the index of open runs", func() bool {
		in.idleMinute(t)
		open, err := in.Ports.Docs.List(t.Context(), record.OpenRunPrefix, "", 1)
		return err == nil && len(open) == 0
	})
	b.take()
	_, stored := in.storageRequests(nil)
	for range minutes {
		in.idleMinute(t)
	}
	objects, stored := in.storageRequests(stored)
	minute := b.take()
	err := reclaim.ScanUploads(t.Context(), in.Ports, reclaim.UploadOptions{Bucket: bucket, Recent: true,
		CheckOwner: ownership.OfCloud(in.Stack).Check})
	if err != nil {
		t.Fatal(err)
	}
	hourly, _ := in.storageRequests(stored)
	month := sum(scale(sum(sum(minute.work, minute.periodic), objects), 30*24*60/minutes),
		scale(sum(b.take().work, hourly), 30*24))
	month[scheduler], month[alert] = 1, 1
	idle := price(t, "an idle month with one pool", month)
	t.Logf("an idle month $%.2f, allowed $%.2f", idle, mostForMonth)
	const storedGB = 0.020 // a month, of Standard Storage
	t.Logf("beside it, a month: what the bucket stores, such as a model of 15 GB $%.2f, and one of 140 GB $%.2f",
		15*storedGB, 140*storedGB)
	if idle > mostForMonth {
		t.Errorf("an idle month costs $%.2f, allowed are $%.2f", idle, mostForMonth)
	}
}

// costRun uploads a file of samples and its config, and returns its run when it has ended, and
// how long that took.
func (in *installation) costRun(t *testing.T, w workload) (id identity.RunID, seconds float64) {
	t.Helper()
	var text strings.Builder
	for n := range w.samples {
		fmt.Fprintf(&text, "{\"id\":\"p-%07d\",\"prompt\":\"%s %d %s\"}\n", n, w.name, n,
			strings.Repeat("to be or not to be, ", 55))
	}
	items := 0
	if w.million {
		line := int64(text.Len() / w.samples)
		cut := shardtable.CutObject(0, 1_000_000*line)
		items = min(cut.MaxItems, int(min(cut.MaxBytes, max(cut.FillBytes, shardtable.DefaultItems*line))/line))
	}
	began := time.Now()
	prompts := "prompts/" + strings.ReplaceAll(w.name, " ", "-")
	hosttest.Put(t, in.Ports, prompts+".toml", fmt.Sprintf("schema_version = 1\n[shard]\nitems = %d\n", items))
	prompts += ".jsonl"
	id = identity.UploadRun(bucket, prompts, hosttest.Put(t, in.Ports, prompts, text.String()))
	// It looks into the emulator, so that looking counts no request.
	scenarios.Eventually(t, "the run's end", func() bool {
		names, err := in.storage.Names(bucket)
		return err == nil && slices.Contains(names, "team-a/"+record.OutputKey(id, record.SummaryFile))
	})
	return id, time.Since(began).Seconds()
}

// summary returns the summary of a run that has ended.
func (in *installation) summary(t *testing.T, id identity.RunID) (summary record.Summary) {
	t.Helper()
	r, _, err := in.Ports.Blobs.Get(t.Context(), record.OutputKey(id, record.SummaryFile), blob.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() // read only
	if err := json.NewDecoder(r).Decode(&summary); err != nil || summary.Failed > 0 {
		t.Fatalf("%d items failed, %v", summary.Failed, err)
	}
	return summary
}

// costWorkers starts workers with the engine, and so many requests in flight each, until
// stop is called or the test ends.
func (in *installation) costWorkers(t *testing.T, n int, engine string, inFlight int) (stop func()) {
	t.Helper()
	var ended []func()
	for i := range n {
		cmd := exec.Command(gpuworker, "--cloud", "gcp", "--pool", "default", "--engine", engine, "--in-flight",
			strconv.Itoa(inFlight))
		cmd.Env = append(in.environment(), "CLOUD_RUN_EXECUTION=rollout-default-cost",
			fmt.Sprintf("CLOUD_RUN_TASK_INDEX=%d", i))
		cmd.Stdout, cmd.Stderr = in.log, in.log
		if err := subprocess.Start(cmd); err != nil {
			t.Fatal(err)
		}
		end := sync.OnceFunc(func() {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()         // killed
		})
		t.Cleanup(end)
		ended = append(ended, end)
	}
	return func() {
		for _, end := range ended {
			end()
		}
	}
}

// idleMinute calls the timer's function once.
func (in *installation) idleMinute(t *testing.T) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, in.addresses[host.ReclaimFunction], http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+fakepubsub.Token(in.Deployment.Cloud.PubSub.PushAccount, "", time.Now()))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close() // it is not used
	if answer.StatusCode != http.StatusNoContent {
		t.Errorf("the timer is answered with %s", answer.Status)
	}
}
