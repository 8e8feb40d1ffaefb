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

// Region is the region of the account.
const Region = "us-east-1"

// Options describe a deployment in the account.
type Options struct {
	// Backend is the address of an emulator of S3, DynamoDB, SQS and Secrets
	// Manager.
	Backend string
	// Config is the text of the deployment's config, which functions get in
	// ROLLOUT_CONFIG.
	Config string
	// Programs is a folder with the program of each function at NAME/bootstrap.
	Programs string
	// Minute is the length of a minute of the schedule and of the backoff of
	// asynchronous invocations; 0 is a minute.
	Minute time.Duration
	// Timeout is the longest time of an invocation; 0 is a minute. The visibility
	// timeout of a mapped queue is six times as long.
	Timeout time.Duration
	// BatchWindow is how long a queue's mapping gathers a batch; 0 is a second.
	BatchWindow time.Duration
	// BatchSize is the largest number of messages of a batch; 0 is 1,000.
	BatchSize int
	// Concurrency is the largest number of processes of a function; 0 is 2.
	Concurrency int
	// Events configures the delivery of events.
	Events Delivery
	// Taken is told of each event that is put on the deployment's bus. Its answer, if not "",
	// is the code of the error with which EventBridge refuses the event; nil takes all.
	Taken func(e BusEvent) (code string)
	// Certificates is a file with the certificates that functions trust besides the
	// system's; "" adds none.
	Certificates string
	// Faults are injected into requests.
	Faults Faults
	// Roles limit what functions, instances and users may do; nil allows
	// everything.
	Roles *iam.Roles
	// Account is what the doctor sees of the account; nil is HealthyAccount.
	Account *Account
	// Seed is the seed of faults and delays.
	Seed uint64
	Log  *slog.Logger // nil discards
}

// Delivery configures how events reach functions. Its zero value delivers each
// event once, in order.
type Delivery struct {
	// Copies is how often each event is delivered; 0 is once.
	Copies int
	// Jitter is the longest random delay of a delivery. It changes the order.
	Jitter time.Duration
}

// Cloud is the account.
type Cloud struct {
	// URL is its address, for AWS_ENDPOINT_URL.
	URL string
	// Meter counts all requests.
	Meter *Meter
	// Groups are the Auto Scaling groups.
	Groups *Groups

	options Options
	account Account
	at      config.Cloud
	server  *httptest.Server
	backend http.Handler
	lambda  *lambda
	ctx     context.Context
	end     context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	rng    *rand.Rand
	traces map[string]string // of messages, by id
	denied []string
	// allowed are the actions that policies have allowed, by caller.
	allowed map[string]map[string]bool
}

// Open starts the account's server. The caller must call Close.
func Open(o Options) (*Cloud, error) {
	backend, err := url.Parse(o.Backend)
	if err != nil {
		return nil, fmt.Errorf("parse the emulator's address: %w", err)
	}
	d, err := config.ParseDeployment("ROLLOUT_CONFIG", []byte(o.Config))
	if err != nil {
		return nil, err
	}
	if d.Cloud.Provider != config.ProviderAWS {
		return nil, errors.New("the deployment is not on AWS")
	}
	o.Minute, o.Timeout = cmp.Or(o.Minute, time.Minute), cmp.Or(o.Timeout, time.Minute)
	o.BatchWindow, o.Concurrency = cmp.Or(o.BatchWindow, time.Second), cmp.Or(o.Concurrency, 2)
	o.BatchSize = cmp.Or(o.BatchSize, largestBatch)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	proxy := httputil.NewSingleHostReverseProxy(backend)
	proxy.ErrorLog = log.New(io.Discard, "", 0) // of requests that callers abort
	c := &Cloud{options: o, at: d.Cloud, backend: proxy, Meter: newMeter(),
		rng: rand.New(rand.NewPCG(o.Seed, 11)), traces: map[string]string{},
		account: HealthyAccount(d), allowed: map[string]map[string]bool{}}
	if o.Account != nil {
		c.account = *o.Account
	}
	c.ctx, c.end = context.WithCancel(context.Background())
	c.lambda = newLambda(c)
	c.Groups = newGroups(c)
	c.server = httptest.NewServer(c)
	c.URL = c.server.URL
	return c, nil
}

// Start starts the mapping of the queue coordinate and the schedule, which calls
// reclaim every minute.
func (c *Cloud) Start() {
	for range mappingPollers {
		c.running.Go(c.mapQueue)
	}
	c.running.Go(c.schedule)
}

// Close kills all processes that the account started and stops its server.
func (c *Cloud) Close() {
	c.end()
	c.Groups.close()
	c.lambda.close()
	c.server.CloseClientConnections()
	c.server.Close()
	c.running.Wait()
}

// Environment is the environment of a process in the account. caller is its access
// key, by which the Meter counts and the roles are chosen.
func (c *Cloud) Environment(caller string) []string {
	return []string{"AWS_ENDPOINT_URL=" + c.URL, "AWS_REGION=" + Region, "AWS_ACCESS_KEY_ID=" + caller,
		"AWS_SECRET_ACCESS_KEY=none",
		"AWS_EC2_METADATA_DISABLED=true", "ROLLOUT_CONFIG=" + c.options.Config}
}

// ServeHTTP serves all services.
func (c *Cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, runtimePath) {
		c.lambda.serveRuntime(w, r)
		return
	}
	q, err := readRequest(r)
	if err != nil {
		return // the client has left
	}
	if c.account.Ahead != 0 {
		w.Header().Set("Date", time.Now().Add(c.account.Ahead).UTC().Format(http.TimeFormat))
		if q.http.Method == http.MethodHead {
			return
		}
	}
	q.resource = c.resourceOf(q)
	switch c.Meter.begin(q); {
	case c.silent(w, q):
	case c.throttle(w, q):
	case c.authorize(w, q):
	case q.service == Lambda:
		c.lambda.serveInvoke(w, q)
	case q.service == AutoScaling:
		c.Groups.serve(w, q)
	case c.serveAccount(w, q):
	case q.service == EventBridge:
		c.putEvents(w, q)
	default:
		c.forward(w, q)
	}
}

// forward passes the request to the emulator and acts on its result: it follows
// chains through messages, and announces new objects.
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
		c.announceObject(q, answer)
	}
	c.Meter.end(q, int64(answer.Body.Len()), answer.Body.Bytes())
	if c.loseReply(w, q, answer.Code) {
		return
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // the client may have left
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

// chance draws a number in [0, n).
func (c *Cloud) chance(n int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.Int64N(n)
}

// wait waits for d. It returns false if the account is closed first.
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
