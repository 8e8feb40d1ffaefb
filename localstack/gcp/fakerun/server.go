package fakerun

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Host is the host of Cloud Run's API.
const Host = "run.googleapis.com"

// Options configure a Server. The zero value launches nothing.
type Options struct {
	// Launch starts the program of a task. The task fails if it returns an error.
	Launch func(Task) (Process, error)
	// Now is the time of the server; default: the machine's.
	Now func() time.Time
}

// Task is a task of an execution.
type Task struct {
	Job       string // the last part of its name
	Execution string // the last part of its name
	Index     int
}

// Environment returns the variables that Cloud Run sets in the task.
func (t Task) Environment() []string {
	return []string{"CLOUD_RUN_JOB=" + t.Job, "CLOUD_RUN_EXECUTION=" + t.Execution,
		fmt.Sprintf("CLOUD_RUN_TASK_INDEX=%d", t.Index), "CLOUD_RUN_TASK_ATTEMPT=0"}
}

// Process is the program of a task.
type Process interface {
	// Wait waits for its end, and reports whether it ended with 0.
	Wait() bool
	// Terminate sends SIGTERM, and Kill sends SIGKILL.
	Terminate()
	Kill()
}

// Server is the emulator. It is safe for concurrent use.
type Server struct {
	options Options
	server  *http.Server
	address string

	mu         sync.Mutex
	jobs       map[string]*job // by full name
	executions int             // ever made
	capacity   int             // tasks that may run at once; negative: any number
	waiting    string          // why tasks wait
	refusals   []Refusal       // of the next runs
	refuseAll  *Refusal
	loseReply  bool // of the next run
	requests   map[string]int
	closed     bool
	processes  sync.WaitGroup
}

type job struct {
	name       string
	executions []*execution // the newest first
}

type execution struct {
	name           string
	created, ended time.Time
	message        string
	tasks          []*task
}

type taskState string

const (
	waiting   taskState = "waiting"
	running   taskState = "running"
	succeeded taskState = "succeeded"
	failed    taskState = "failed"
	cancelled taskState = "cancelled"
)

type task struct {
	Task
	state   taskState
	process Process
}

// Refusal is an answer to jobs.run that starts nothing.
type Refusal struct {
	Status  int // of HTTP
	Code    string
	Message string
}

// NoQuota is how Cloud Run refuses a job with a GPU in a project without quota.
var NoQuota = Refusal{http.StatusBadRequest, "FAILED_PRECONDITION",
	"You do not have quota for using GPUs without zonal redundancy. " +
		"Learn more about GPU zonal redundancy: g.co/cloudrun/gpu-redundancy-help"}

// Start serves an emulator on a port of the loopback interface until end is called, with
// TLS if secure is not nil. end kills the tasks' programs.
func Start(o Options, secure *tls.Config) (s *Server, end func(), err error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	s = &Server{options: o, address: listener.Addr().String(), jobs: map[string]*job{}, capacity: -1,
		requests: map[string]int{}}
	if secure != nil {
		listener = tls.NewListener(listener, secure)
	}
	s.server = &http.Server{Handler: s}
	go func() { _ = s.server.Serve(listener) }() // it ends with Close
	return s, s.close, nil
}

// Address returns the address at which the emulator listens.
func (s *Server) Address() string { return s.address }

func (s *Server) close() {
	s.mu.Lock()
	s.closed = true
	for _, j := range s.jobs {
		for _, e := range j.executions {
			for _, t := range e.tasks {
				if t.process != nil && t.state == running {
					t.process.Kill()
				}
			}
		}
	}
	s.mu.Unlock()
	s.processes.Wait()
	_ = s.server.Close() // it has no state to lose
}

// Client returns a client of this process that reaches the emulator as Host.
func (s *Server) Client() *http.Client { return &http.Client{Transport: redirect{s.address}} }

// redirect sends requests to another address, without TLS.
type redirect struct{ address string }

// RoundTrip sends the request; see http.RoundTripper.
func (d redirect) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != Host {
		return nil, fmt.Errorf("a request to %s", r.URL.Host)
	}
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = "http", d.address
	return http.DefaultTransport.RoundTrip(r)
}

// ServeHTTP answers a request; see http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/v2/")
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(name, ":run"):
		s.serveRun(w, r, strings.TrimSuffix(name, ":run"))
	case r.Method == http.MethodPost && strings.HasSuffix(name, ":cancel"):
		s.serveCancel(w, strings.TrimSuffix(name, ":cancel"))
	case r.Method == http.MethodGet && strings.HasSuffix(name, "/executions"):
		s.serveList(w, r, strings.TrimSuffix(name, "/executions"))
	default:
		refuse(w, Refusal{http.StatusNotFound, "NOT_FOUND", "no method " + r.Method + " " + r.URL.Path})
	}
}

// refuse answers with an error as Google's services do.
func refuse(w http.ResponseWriter, f Refusal) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.Status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{ // to a client that may have gone
		"code": f.Status, "status": f.Code, "message": f.Message}})
}

func notFound(name string) Refusal {
	return Refusal{http.StatusNotFound, "NOT_FOUND", fmt.Sprintf("Resource '%s' was not found.", name)}
}

func (s *Server) serveRun(w http.ResponseWriter, r *http.Request, name string) {
	var in struct {
		Overrides struct {
			TaskCount int `json:"taskCount"`
		} `json:"overrides"`
	}
	err := json.NewDecoder(r.Body).Decode(&in)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests["run"]++
	j := s.jobs[name]
	switch {
	case err != nil || in.Overrides.TaskCount < 1:
		refuse(w, Refusal{http.StatusBadRequest, "INVALID_ARGUMENT", "taskCount must be at least 1"})
		return
	case j == nil:
		refuse(w, notFound(name))
		return
	case s.refuseAll != nil:
		refuse(w, *s.refuseAll)
		return
	case len(s.refusals) > 0:
		refuse(w, s.refusals[0])
		s.refusals = s.refusals[1:]
		return
	}
	s.executions++
	short := j.name[strings.LastIndex(j.name, "/")+1:]
	e := &execution{name: fmt.Sprintf("%s/executions/%s-%05d", j.name, short, s.executions), created: s.options.Now()}
	for i := range in.Overrides.TaskCount {
		e.tasks = append(e.tasks, &task{state: waiting,
			Task: Task{Job: short, Execution: e.name[strings.LastIndex(e.name, "/")+1:], Index: i}})
	}
	j.executions = append([]*execution{e}, j.executions...)
	s.schedule()
	if s.loseReply {
		s.loseReply = false
		panic(http.ErrAbortHandler) // closes the connection without an answer
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"name": "operations/1", // to a client that may have gone
		"metadata": map[string]any{"@type": "type.googleapis.com/google.cloud.run.v2.Execution", "name": e.name}})
}

func (s *Server) serveCancel(w http.ResponseWriter, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests["cancel"]++
	e := s.find(name)
	switch {
	case e == nil:
		refuse(w, notFound(name))
		return
	case !e.ended.IsZero():
		refuse(w, Refusal{http.StatusBadRequest, "FAILED_PRECONDITION", "The execution has completed."})
		return
	}
	s.cancel(e)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"name":"operations/2"}`)) // to a client that may have gone
}

func (s *Server) serveList(w http.ResponseWriter, r *http.Request, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests["list"]++
	j := s.jobs[name]
	if j == nil {
		refuse(w, notFound(name))
		return
	}
	size, _ := strconv.Atoi(r.URL.Query().Get("pageSize"))  // 0 is the default
	from, _ := strconv.Atoi(r.URL.Query().Get("pageToken")) // 0 is the first page
	if size < 1 || size > 100 {
		size = 100
	}
	from = min(from, len(j.executions))
	to := min(from+size, len(j.executions))
	out := map[string]any{}
	var page []map[string]any
	for _, e := range j.executions[from:to] {
		page = append(page, e.json())
	}
	if page != nil {
		out["executions"] = page
	}
	if to < len(j.executions) {
		out["nextPageToken"] = strconv.Itoa(to)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // to a client that may have gone
}

// json returns the execution as the API shows it: members that are zero are absent.
func (e *execution) json() map[string]any {
	out := map[string]any{"name": e.name, "createTime": e.created.UTC().Format(time.RFC3339Nano),
		"taskCount": len(e.tasks)}
	counts := map[taskState]int{}
	for _, t := range e.tasks {
		counts[t.state]++
	}
	for member, state := range map[string]taskState{"runningCount": running, "succeededCount": succeeded,
		"failedCount": failed, "cancelledCount": cancelled} {
		if n := counts[state]; n > 0 {
			out[member] = n
		}
	}
	state := "CONDITION_RECONCILING"
	if !e.ended.IsZero() {
		out["completionTime"] = e.ended.UTC().Format(time.RFC3339Nano)
		state = "CONDITION_SUCCEEDED"
		if counts[failed]+counts[cancelled] > 0 {
			state = "CONDITION_FAILED"
		}
	}
	out["conditions"] = []map[string]any{{"type": "Completed", "state": state, "message": e.message}}
	return out
}
