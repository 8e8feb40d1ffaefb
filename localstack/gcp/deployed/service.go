package deployed

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rollout/localstack/gcp/iam"
	"rollout/localstack/gcp/planned"
	"rollout/localstack/subprocess"
)

// Service is a service of Cloud Run: one process, and the front that lets callers in.
type Service struct {
	Name, Account, URL string

	in      *Installation
	values  planned.Object
	timeout time.Duration
	env     []string // of the process, without its port
	proxy   *httputil.ReverseProxy
	slots   chan struct{} // for the requests at once that the plan allows
	fails   atomic.Bool
	loses   atomic.Bool
	lost    atomic.Int64

	port string // reserved for the process, and for those after it

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
	down  bool // killed, and not started again
	ready bool // the process listens
}

// startService starts a planned service, whose front listens there, until the test ends.
func (in *Installation) startService(t testing.TB, r planned.Resource, front net.Listener) {
	t.Helper()
	template := r.Values.Block("template")
	container := template.Block("containers")
	if command := container.Texts("command"); len(command) != 1 || command[0] != "/functions" {
		t.Fatalf("%s: the image has no program %v", r.Address, command)
	}
	timeout, err := time.ParseDuration(template.Text("timeout"))
	if err != nil {
		t.Fatalf("%s: %v", r.Address, err)
	}
	most := template.Number("max_instance_request_concurrency") * template.Block("scaling").Number("max_instance_count")
	s := &Service{Name: r.Values.Text("name"), Account: template.Text("service_account"), in: in, values: r.Values,
		URL: "http://" + front.Addr().String(), timeout: timeout, slots: make(chan struct{}, most)}
	port, release, err := subprocess.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	s.port = strconv.Itoa(port)
	environment, end, err := in.Environment(s.Account)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	s.env = append(environment, "LOCAL_ONLY=true", "K_SERVICE="+s.Name)
	var target string
	for _, e := range container.Blocks("env") {
		s.env = append(s.env, e.Text("name")+"="+e.Text("value"))
		if e.Text("name") == "FUNCTION_TARGET" {
			target = e.Text("value")
		}
	}
	s.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: s.address()})
			r.SetXForwarded()
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			http.Error(w, "the instance does not answer", http.StatusServiceUnavailable)
		},
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	server := &http.Server{Handler: s}
	go func() { _ = server.Serve(front) }() // it ends with Close
	t.Cleanup(func() { _ = server.Close() })
	in.Services[target] = s
}

// Start starts the process. Requests wait until it listens.
func (s *Service) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.start()
}

// start starts the process. The caller holds mu.
func (s *Service) start() error {
	cmd := exec.Command(s.in.options.Functions)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(slices.Clone(s.env), "PORT="+s.port), s.in.options.Log, s.in.options.Log
	if err := subprocess.Start(cmd); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		close(ended)
	}()
	s.cmd, s.ended, s.down, s.ready = cmd, ended, false, false
	return nil
}

// address returns the address of the process.
func (s *Service) address() string { return "127.0.0.1:" + s.port }

// Kill ends the process with SIGKILL. Requests are answered with 503 until Start.
func (s *Service) Kill() {
	s.mu.Lock()
	cmd, ended := s.cmd, s.ended
	s.down = true
	s.mu.Unlock()
	_ = cmd.Process.Kill() // it may have ended
	<-ended
}

// ServeHTTP lets a caller in that the policy allows, with a token whose signature it
// replaces, as Cloud Run does; see http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.values.Is("invoker_iam_disabled") && !s.admit(r) {
		http.Error(w, "Your client does not have permission to get URL / from this server.", http.StatusForbidden)
		return
	}
	if s.fails.Load() {
		http.Error(w, "it fails, because a test wants that", http.StatusInternalServerError)
		return
	}
	if s.loses.Load() {
		s.lost.Add(1)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.timeout)
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		http.Error(w, "no available instance", http.StatusTooManyRequests)
		return
	}
	if !s.listens(ctx) {
		http.Error(w, "no available instance", http.StatusServiceUnavailable)
		return
	}
	s.proxy.ServeHTTP(w, r.WithContext(ctx))
}

// admit reports whether the caller may call the service.
func (s *Service) admit(r *http.Request) bool {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	claims, err := s.in.signer.Verify(token)
	if err != nil {
		return false
	}
	account, _ := claims["email"].(string)
	audience, _ := claims["aud"].(string)
	if audience != s.URL && !slices.Contains(s.values.Texts("custom_audiences"), audience) {
		return false
	}
	if s.in.Policy.Check(iam.Request{Member: memberOf(account), Permission: "run.routes.invoke",
		Resource: serviceName(s.in.project, s.values.Text("location"), s.Name)}) != nil {
		return false
	}
	signed := token[:strings.LastIndexByte(token, '.')]
	r.Header.Set("Authorization", "Bearer "+signed+".SIGNATURE_REMOVED_BY_GOOGLE")
	return true
}

// restarts is how often a process that ends by itself is started again for a request.
const restarts = 3

// listens waits until the process listens. It returns false if the process was killed, or
// ends again and again. One that ended by itself is started again, as on Cloud Run: another
// program may have taken its port.
func (s *Service) listens(ctx context.Context) bool {
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for revived := 0; revived <= restarts; {
		if s.revive() {
			revived++
		}
		s.mu.Lock()
		down, ready := s.down, s.ready
		s.mu.Unlock()
		if down || ready {
			return ready && !down
		}
		if c, err := net.Dial("tcp", s.address()); err == nil {
			_ = c.Close() // it was a question
			s.mu.Lock()
			s.ready = true
			s.mu.Unlock()
			continue // it may have ended meanwhile
		}
		select {
		case <-ctx.Done():
			return false
		case <-poll.C:
		}
	}
	return false
}

// revive starts the process again if it has ended by itself. It reports whether it has.
func (s *Service) revive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.ended:
		return !s.down && s.start() == nil
	default:
		return false
	}
}

// Fail makes the service answer every request with 500, or no longer.
func (s *Service) Fail(fails bool) { s.fails.Store(fails) }

// Lose makes the service accept every request and do nothing, or no longer, as if its
// messages got lost.
func (s *Service) Lose(loses bool) { s.loses.Store(loses) }

// Lost is how many requests the service has lost so far.
func (s *Service) Lost() int64 { return s.lost.Load() }

// Call sends a request with a bearer token to the service, and decodes the answer into out
// unless that is nil.
func (s *Service) Call(ctx context.Context, method, path, token, body string, out any) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, method, s.URL+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	if out != nil && response.StatusCode < http.StatusMultipleChoices {
		err = json.NewDecoder(response.Body).Decode(out)
	}
	return response.StatusCode, err
}
