package online

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"rollout/functions/api"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/onlinewire"
)

// maxRequests bounds the requests of clients at once; further ones get 429.
const maxRequests = 4096

// Door passes requests on. It is safe for concurrent use.
type Door struct {
	host.Ports
	deployment config.Deployment
	maxWait    time.Duration
	workers    workers
	bodies     *onlinewire.Bodies
	transport  *http.Transport
	meter      Meter
	open       atomic.Int64  // requests of clients
	grace      time.Duration // what a worker may take beyond what it is given
}

// Meter counts online requests. It is called by many goroutines at once.
type Meter interface {
	// OnlineBegan says that a request has come, OnlineAnswered that the first byte of an
	// answer came after that time, and OnlineEnded that it is over, with that status. began
	// says that OnlineAnswered was called, and whole that the answer was not cut off.
	OnlineBegan(pool string)
	OnlineAnswered(pool string, after time.Duration)
	OnlineEnded(pool string, status int, began, whole bool)
}

// New returns the door of a deployment. Meter may be nil.
func New(p host.Ports, d config.Deployment, m Meter) *Door {
	door := &Door{Ports: p, deployment: d, maxWait: d.Online.MaxWait.Std(), bodies: onlinewire.NewBodies(),
		workers: newWorkers(p, d), meter: m, grace: grace}
	if m == nil {
		door.meter = noMeter{}
	}
	door.transport = newTransport()
	return door
}

// Mount returns where the API of a deployment serves online requests.
func (d *Door) Mount() api.Mount {
	m := api.Mount{Handler: d}
	for _, p := range onlinewire.Paths() {
		m.Paths = append(m.Paths, "/v1/"+p)
	}
	return m
}

// ServeHTTP implements http.Handler. Whoever calls it authenticates requests.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	// An answer may take long: each piece of it has its own time, and not the whole.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // recorders of tests have none
	switch {
	case !slices.Contains(onlinewire.Paths(), path):
		refuse(w, fault.New(fault.NotFound, "there is nothing at %s", r.URL.Path))
		return
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, fault.New(fault.Invalid, "send a POST to %s", r.URL.Path))
		return
	case d.deployment.Online.Share <= 0:
		refuse(w, fault.New(fault.Denied, "online requests are off: set share in [online] of rollout.toml above 0"))
		return
	}
	defer d.open.Add(-1)
	if d.open.Add(1) > maxRequests {
		refuse(w, fault.New(fault.Throttled, "%d online requests are open already", maxRequests))
		return
	}
	began := d.Clock.Now()
	body, release, err := d.bodies.Read(w, r, onlinewire.MaxBody, d.maxWait)
	if err != nil {
		refuse(w, err)
		return
	}
	x := &exchange{door: d, w: w, r: r, path: path, began: began, release: release}
	defer x.releaseBody()
	if x.asked, err = onlinewire.Parse(body); err != nil {
		refuse(w, err)
		return
	}
	if x.pools, err = d.poolsOf(x.asked.Model); err != nil {
		refuse(w, err)
		return
	}
	x.run()
}

// pool is a pool that may answer a request.
type pool struct {
	name  string
	model string // as its servers call it
	// silence is how long a streamed answer may stop. whole is how long a whole answer may take.
	silence, whole time.Duration
}

// poolsOf returns the pools that a model names: those that serve it, or the one of that name.
func (d *Door) poolsOf(model string) ([]pool, error) {
	var found []pool
	var have []string
	for _, p := range d.deployment.InferPools() {
		have = append(have, p.Model)
		if p.Model != model && p.Name != model {
			continue
		}
		own := d.deployment.ForPool(p.Name)
		whole := own.Worker.RequestTimeout.Std()
		if whole <= 0 {
			whole = onlinewire.WholeTime
		}
		found = append(found, pool{p.Name, cmp.Or(own.Engine.BodyModel[p.Model], p.Model),
			own.Worker.ProgressTimeout.Std(), whole})
	}
	slices.Sort(have)
	switch {
	case model == "":
		return nil, &paramError{"model", "missing_model", fault.New(fault.Invalid,
			"the request names no model; there are: %s", strings.Join(slices.Compact(have), ", "))}
	case len(found) == 0:
		return nil, &paramError{"model", "model_not_found", fault.New(fault.NotFound,
			"the model %.80q does not exist; there are: %s", model, strings.Join(slices.Compact(have), ", "))}
	}
	return found, nil
}

// paramError is an error about a parameter of the request.
type paramError struct {
	param, code string
	err         error
}

func (e *paramError) Error() string { return e.err.Error() }
func (e *paramError) Unwrap() error { return e.err }

// refuse answers with an error in OpenAI's form.
func refuse(w http.ResponseWriter, err error) {
	status, p := http.StatusInternalServerError, onlinewire.Problem{Message: err.Error(), Type: onlinewire.ServerError,
		Code: fault.KindOf(err).String()}
	passes := false
	switch fault.KindOf(err) {
	case fault.Invalid:
		status, p.Type = http.StatusBadRequest, onlinewire.InvalidRequest
	case fault.NotFound:
		status, p.Type = http.StatusNotFound, onlinewire.InvalidRequest
	case fault.Denied:
		status, p.Type = http.StatusForbidden, onlinewire.InvalidRequest
	case fault.Exhausted:
		status, p.Type = http.StatusRequestEntityTooLarge, onlinewire.InvalidRequest
	case fault.Throttled:
		status, p.Type, passes = http.StatusTooManyRequests, onlinewire.RateLimit, true
	case fault.Unavailable, fault.Canceled:
		status, passes = http.StatusServiceUnavailable, true
	}
	var asked *paramError
	if errors.As(err, &asked) {
		p.Param, p.Code = &asked.param, asked.code
	}
	if passes {
		w.Header().Set("Retry-After", "1")
	} else {
		w.Header().Set("X-Should-Retry", "false")
	}
	onlinewire.WriteProblem(w, status, p)
}

// noMeter counts nothing.
type noMeter struct{}

func (noMeter) OnlineBegan(string)                   {}
func (noMeter) OnlineAnswered(string, time.Duration) {}
func (noMeter) OnlineEnded(string, int, bool, bool)  {}

// errNoWorker says that no worker of a pool takes requests now.
func errNoWorker(pools []pool) error {
	var names []string
	for _, p := range pools {
		names = append(names, p.name)
	}
	return &fault.Error{Kind: fault.Unavailable, Remedy: "repeat the request later, or look at `rollout status`",
		Op: fmt.Sprintf("no worker of pool %s takes online requests at the moment", strings.Join(names, ", "))}
}

// pause waits for d; false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
