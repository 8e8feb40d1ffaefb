package fakeaws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"rollout/localstack/aws/iam"
	"rollout/shared/config"
)

// Region is where the stand-in says it is.
const Region = "us-east-1"

// Options are a deployment on the stand-in.
type Options struct {
	// Backend is the address of an emulator of S3, DynamoDB, SQS and Secrets
	// Manager.
	Backend string
	// Config is the deployment's config, which functions get in ROLLOUT_CONFIG.
	Config string
	// Programs is a folder with the program of a function NAME at NAME/bootstrap.
	Programs string
	// Minute is how long a minute of the schedule takes, and of the wait before
	// an asynchronous invocation is tried again; 0 is a minute.
	Minute time.Duration
	// Timeout is how long an invocation may take; 0 is a minute. A queue's
	// messages are hidden for six times as long.
	Timeout time.Duration
	// BatchWindow is how long a queue's mapping gathers messages; 0 is a second.
	BatchWindow time.Duration
	// BatchSize is how many of them it gathers at most; 0 is 1,000.
	BatchSize int
	// Concurrency is how many processes a function may have; 0 is 2.
	Concurrency int
	// Events says how events are delivered.
	Events Delivery
	// Faults are what goes wrong with requests.
	Faults Faults
	// Roles are what functions and instances may do; nil lets them do
	// everything.
	Roles *iam.Roles
	// Seed is what chance is drawn from.
	Seed uint64
	Log  *slog.Logger // nil discards
}

// Delivery is how events reach functions. Its zero value is once, in order.
type Delivery struct {
	// Copies is how often each event is delivered; 0 is once.
	Copies int
	// Jitter is the longest that a delivery is late, by chance: so they come in
	// any order.
	Jitter time.Duration
}

// Cloud is the stand-in.
type Cloud struct {
	// URL is its address, for AWS_ENDPOINT_URL.
	URL string
	// Meter has counted all requests.
	Meter *Meter
	// Groups are the groups of Auto Scaling.
	Groups *Groups

	options Options
	at      config.Cloud
	server  *httptest.Server
	backend http.Handler
	lambda  *lambda
	ctx     context.Context
	end     context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex
	rng       *rand.Rand
	traces    map[string]string // of messages, by id
	forbidden []string
}

// Open starts the stand-in. Close must be called.
func Open(o Options) (*Cloud, error) {
	backend, err := url.Parse(o.Backend)
	if err != nil {
		return nil, fmt.Errorf("the emulator's address: %w", err)
	}
	d, err := config.ParseDeployment("ROLLOUT_CONFIG", []byte(o.Config))
	if err != nil {
		return nil, err
	}
	if d.Cloud.Provider != config.ProviderAWS {
		return nil, errors.New("the deployment is in no cloud")
	}
	o.Minute, o.Timeout = cmp.Or(o.Minute, time.Minute), cmp.Or(o.Timeout, time.Minute)
	o.BatchWindow, o.Concurrency = cmp.Or(o.BatchWindow, time.Second), cmp.Or(o.Concurrency, 2)
	o.BatchSize = cmp.Or(o.BatchSize, largestBatch)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	proxy := httputil.NewSingleHostReverseProxy(backend)
	proxy.ErrorLog = log.New(io.Discard, "", 0) // of requests that callers give up
	c := &Cloud{options: o, at: d.Cloud, backend: proxy, Meter: newMeter(),
		rng: rand.New(rand.NewPCG(o.Seed, 11)), traces: map[string]string{}}
	c.ctx, c.end = context.WithCancel(context.Background())
	c.lambda = newLambda(c)
	c.Groups = newGroups(c)
	c.server = httptest.NewServer(c)
	c.URL = c.server.URL
	return c, nil
}

// Start begins to deliver: the mapping of the queue coordinate polls, and the
// schedule calls reclaim every minute.
func (c *Cloud) Start() {
	for range mappingPollers {
		c.running.Go(c.mapQueue)
	}
	c.running.Go(c.schedule)
}

// Close ends everything that the stand-in started, without notice.
func (c *Cloud) Close() {
	c.end()
	c.Groups.close()
	c.lambda.close()
	c.server.CloseClientConnections()
	c.server.Close()
	c.running.Wait()
}

// Environment is that of a process in the account, which caller names in the
// counts of the Meter: its access key has that name.
func (c *Cloud) Environment(caller string) []string {
	return []string{"AWS_ENDPOINT_URL=" + c.URL, "AWS_REGION=" + Region, "AWS_ACCESS_KEY_ID=" + caller, "AWS_SECRET_ACCESS_KEY=none",
		"AWS_EC2_METADATA_DISABLED=true", "ROLLOUT_CONFIG=" + c.options.Config}
}

// ServeHTTP answers as the service that the request is for.
func (c *Cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, runtimePath) {
		c.lambda.serveRuntime(w, r)
		return
	}
	q, err := readRequest(r)
	if err != nil {
		return // nobody is there to be told
	}
	q.about = c.resource(q)
	switch c.Meter.begin(q); {
	case c.throttle(w, q):
	case c.authorize(w, q):
	case q.service == Lambda:
		c.lambda.serveInvoke(w, q)
	case q.service == AutoScaling:
		c.Groups.serve(w, q)
	default:
		c.forward(w, q)
	}
}

// forward lets the emulator answer, and looks at what it does.
func (c *Cloud) forward(w http.ResponseWriter, q *request) {
	if q.service == S3 && q.http.Method == http.MethodGet {
		counted := &countingWriter{ResponseWriter: w}
		c.backend.ServeHTTP(counted, q.http)
		c.Meter.end(q, counted.bytes, nil)
		return
	}
	answer := httptest.NewRecorder()
	c.backend.ServeHTTP(answer, q.http)
	if q.service == SQS {
		c.follow(q, answer)
	}
	if q.service == S3 {
		c.notice(q, answer)
	}
	c.Meter.end(q, int64(answer.Body.Len()), answer.Body.Bytes())
	if c.loseReply(w, q, answer.Code) {
		return
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // whoever is gone asks again
}

type countingWriter struct {
	http.ResponseWriter
	bytes int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController through.
func (c *countingWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// chance draws a number below n.
func (c *Cloud) chance(n int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.Int64N(n)
}

// wait waits for d, unless the stand-in is closed meanwhile.
func (c *Cloud) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}
