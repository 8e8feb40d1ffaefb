package fakeaws

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	functionsPath = "/2015-03-31/functions/"
	// attempts is how often Lambda tries an asynchronous invocation.
	attempts = 3
	// deadTasks is the queue of failed asynchronous invocations, without the prefix.
	deadTasks = "tasks-dead"
)

var (
	errRecursive = errors.New("the chain of invocations is too long: the function is invoked in a recursive loop")
	errTimedOut  = errors.New("the task timed out")
	errExited    = errors.New("the runtime exited without an answer")
	errClosed    = errors.New("the account is closed")
)

// Reply is the answer of a function.
type Reply struct {
	Body   []byte
	Failed bool // the function reported an error
}

// Calls counts the invocations of a function.
type Calls struct {
	Count, Failed, LoopsBlocked, Cold int
	Billed                            time.Duration // rounded up to milliseconds, with cold starts
	LongestChain                      int           // in invocations
}

// lambda is the account's Lambda service.
type lambda struct {
	cloud  *Cloud
	mu     sync.Mutex
	all    map[string]*function
	next   int
	procs  map[string]*process
	closed bool
}

type function struct {
	name  string
	slots chan struct{}
	idle  []*process
	calls Calls
}

func newLambda(c *Cloud) *lambda {
	return &lambda{cloud: c, all: map[string]*function{}, procs: map[string]*process{}}
}

func (l *lambda) function(name string) *function {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all[name] == nil {
		l.all[name] = &function{name: name, slots: make(chan struct{}, l.cloud.options.Concurrency)}
	}
	return l.all[name]
}

// Calls returns the counts so far, by function.
func (c *Cloud) Calls() map[string]Calls {
	c.lambda.mu.Lock()
	defer c.lambda.mu.Unlock()
	out := map[string]Calls{}
	for name, f := range c.lambda.all {
		out[name] = f.calls
	}
	return out
}

// functionOf is the function of a request, without the deployment's prefix; "" if
// it belongs to another deployment.
func (c *Cloud) functionOf(q *request) string {
	full, _, _ := strings.Cut(strings.TrimPrefix(q.http.URL.Path, functionsPath), "/")
	full = full[strings.LastIndex(full, ":")+1:] // of an ARN
	name, ok := strings.CutPrefix(full, c.at.FunctionName(""))
	if !ok {
		return ""
	}
	return name
}

// serveInvoke serves the API that invokes functions.
func (l *lambda) serveInvoke(w http.ResponseWriter, q *request) {
	name := l.cloud.functionOf(q)
	w.Header().Set("Content-Type", "application/json")
	if !slices.Contains(functions, name) {
		w.Header().Set("X-Amzn-ErrorType", "ResourceNotFoundException")
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprintf(w, `{"Type":"User","Message":"Function not found: %s"}`, name)
		return
	}
	trace := q.http.Header.Get(traceHeader)
	if q.http.Header.Get("X-Amz-Invocation-Type") == "Event" {
		l.cloud.invokeAsync(name, q.body, trace)
		w.WriteHeader(http.StatusAccepted)
		l.cloud.Meter.end(q, 0, nil)
		return
	}
	reply, err := l.call(name, q.body, trace)
	switch {
	case errors.Is(err, errRecursive):
		w.Header().Set("X-Amzn-ErrorType", "RecursiveInvocationException")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"Type":"User","Message":%q}`, err)
	case err != nil:
		w.Header().Set("X-Amz-Function-Error", "Unhandled")
		_, _ = fmt.Fprintf(w, `{"errorMessage":%q}`, err)
	default:
		if reply.Failed {
			w.Header().Set("X-Amz-Function-Error", "Unhandled")
		}
		_, _ = w.Write(reply.Body)
	}
}

// Memory is the memory of a function in MiB, as infra/aws deploys it.
func Memory(function string) int {
	switch function {
	case "plan", "finalize":
		return 1769
	case "coordinate":
		return 512
	case "interrupt":
		return 128
	}
	return 256
}

// functions are the functions of a deployment.
var functions = []string{"api", "coordinate", "finalize", "interrupt", "plan", "reclaim", "submit"}

// Invoke invokes a function and waits for its answer.
func (c *Cloud) Invoke(name string, event []byte) (Reply, error) {
	return c.lambda.call(name, event, "")
}

// InvokeAsync invokes a function asynchronously.
func (c *Cloud) InvokeAsync(name string, event []byte) { c.invokeAsync(name, event, "") }

// invokeAsync delivers an event as Options.Events says.
func (c *Cloud) invokeAsync(name string, event []byte, trace string) {
	for range max(1, c.options.Events.Copies) {
		delay := time.Duration(0)
		if j := c.options.Events.Jitter; j > 0 {
			delay = time.Duration(c.chance(int64(j)))
		}
		c.running.Go(func() {
			if c.wait(delay) {
				c.retryAsync(name, event, trace)
			}
		})
	}
}

// retryAsync retries a failing invocation after one minute and after two, and then
// sends it to the dead letters. It does not retry reclaim, which the schedule calls
// again.
func (c *Cloud) retryAsync(name string, event []byte, trace string) {
	var reply Reply
	var err error
	condition := "RetriesExhausted"
	for n := range attempts {
		if n > 0 && !c.wait(time.Duration(n)*c.options.Minute) {
			return
		}
		if reply, err = c.lambda.call(name, event, trace); err == nil && !reply.Failed || c.ctx.Err() != nil {
			return
		}
		c.options.Log.Warn("an asynchronous invocation failed", "function", name, "attempt", n+1, "error", err, "answer",
			string(reply.Body))
		if errors.Is(err, errRecursive) {
			condition = "RecursiveInvocation"
			break
		}
		if name == "reclaim" {
			return
		}
	}
	c.deadLetter(name, condition, event, reply)
}

// deadLetter sends the record of a failed invocation to the dead letters.
func (c *Cloud) deadLetter(name, condition string, event []byte, reply Reply) {
	payload := event
	if !json.Valid(payload) {
		payload, _ = json.Marshal(string(event))
	}
	response := reply.Body
	if !json.Valid(response) {
		response, _ = json.Marshal(string(reply.Body))
	}
	record, err := json.Marshal(map[string]any{"version": "1.0", "timestamp": time.Now().UTC().Format(time.RFC3339Nano),
		"requestContext": map[string]any{"functionArn": c.arn(name) + ":$LATEST", "condition": condition,
			"approximateInvokeCount": attempts},
		"requestPayload":  json.RawMessage(payload),
		"responsePayload": json.RawMessage(response)})
	if err == nil {
		err = c.send(c.at.SQS.Prefix+deadTasks, record)
	}
	if err != nil {
		c.options.Log.Error("send a dead letter", "function", name, "error", err)
	}
}

func (c *Cloud) arn(function string) string {
	return "arn:aws:lambda:" + Region + ":000000000000:function:" + c.at.FunctionName(function)
}

// call invokes a function unless the chain is too long.
func (l *lambda) call(name string, event []byte, trace string) (Reply, error) {
	f, chain := l.function(name), readLineage(trace)
	chain.add(f.name)
	l.note(f, func(c *Calls) { c.LongestChain = max(c.LongestChain, chain.length()) })
	if chain.length() > longestChain {
		l.note(f, func(c *Calls) { c.LoopsBlocked++ })
		return Reply{}, errRecursive
	}
	select {
	case f.slots <- struct{}{}:
	case <-l.cloud.ctx.Done():
		return Reply{}, l.cloud.ctx.Err()
	}
	defer func() { <-f.slots }()
	p, cold, err := l.take(f)
	if err != nil {
		return Reply{}, err
	}
	began := time.Now()
	reply, err := p.call(invocation{event: event, trace: chain.header(), limit: l.cloud.options.Timeout})
	took := time.Since(began)
	l.note(f, func(c *Calls) {
		c.Count++
		c.Billed += (took + time.Millisecond - 1).Truncate(time.Millisecond)
		if cold {
			c.Cold++
		}
		if err != nil || reply.Failed {
			c.Failed++
		}
	})
	if err != nil {
		p.kill()
		return Reply{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f.idle = append(f.idle, p)
	return reply, nil
}

// note changes the counts of a function.
func (l *lambda) note(f *function, change func(*Calls)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&f.calls)
}

// take returns an idle process of the function, or a new one.
func (l *lambda) take(f *function) (p *process, cold bool, err error) {
	l.mu.Lock()
	for len(f.idle) > 0 {
		p = f.idle[len(f.idle)-1]
		f.idle = f.idle[:len(f.idle)-1]
		if !p.hasEnded() {
			l.mu.Unlock()
			return p, false, nil
		}
	}
	l.next++
	id := fmt.Sprintf("%s-%d", f.name, l.next)
	l.mu.Unlock()
	p, err = l.start(f.name, id)
	return p, true, err
}

// Crash kills a running process of the function and reports whether one existed.
func (c *Cloud) Crash(name string) bool {
	c.lambda.mu.Lock()
	defer c.lambda.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(c.lambda.procs)) {
		if p := c.lambda.procs[id]; p.function == name && !p.hasEnded() {
			p.signal(sigKill)
			return true
		}
	}
	return false
}

func (l *lambda) close() {
	l.mu.Lock()
	l.closed = true
	all := slices.Collect(maps.Values(l.procs))
	l.mu.Unlock()
	for _, p := range all {
		p.kill()
	}
}

// Logs is the end of what each process of a function has written.
func (c *Cloud) Logs(name string) string {
	c.lambda.mu.Lock()
	defer c.lambda.mu.Unlock()
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(c.lambda.procs)) {
		if p := c.lambda.procs[id]; p.function == name {
			_, _ = io.WriteString(&b, p.log.String())
		}
	}
	return b.String()
}
