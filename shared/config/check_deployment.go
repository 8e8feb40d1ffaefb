package config

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	maxInFlight  = 65536
	maxBucket    = 63
	maxPool      = 32
	maxSecret    = 64
	maxServers   = 256
	maxPerMinute = 1_000_000_000
	maxSettle    = Duration(time.Hour)
	// minKeepDocuments leaves time to look at an ended run, and is longer than a worker may be
	// stopped before its shards are another one's.
	minKeepDocuments = Duration(time.Hour)
	maxOnlineQueue   = 10_000
	maxOnlineWait    = Duration(10 * time.Minute)
	maxPrice         = 1_000_000 // dollars for a million tokens

	// deadLetterSuffix ends the names of dead-letter queues, as in shared/queue.
	// A pool's name must not end with it, because its queue has the same name.
	deadLetterSuffix = "-dead"
)

// Check returns the problems of a deployment that was built in code or changed
// by flags. The error is Invalid and holds Problems.
func (d Deployment) Check() error {
	c := newChecker("", nil)
	d.check(c)
	return c.err()
}

func (d Deployment) check(c *checker) {
	c.schema("schema_version", d.SchemaVersion)
	if !d.Cloud.Configured() {
		c.label("bucket", d.Bucket, maxBucket, ".")
	}
	d.Input.check(c, "input", d.Cloud.Configured())
	d.Storage.check(c, "storage", d.Cloud.Configured())
	d.Cloud.check(c, "cloud")
	d.Health.check(c, "health")
	d.Worker.check(c, "worker")
	d.Online.check(c, "online", d.Cloud.Configured())
	d.Engine.check(c, "engine")
	d.checkEngines(c)
	checkPools(c, d.Pools, d.Cloud.Provider)
	d.Pipeline.check(c, "pipeline")
	for i, p := range d.Pools {
		if p.Pipelined() {
			p.checkPipelined(c, element("pool", i), d.Cloud.Provider, d.Pipeline.Stage)
		}
	}
	for i, name := range d.Secrets {
		c.label(element("secrets", i), name, maxSecret, "")
	}
	allowed := slices.Concat(d.Secrets, d.Cloud.Secrets.Allowlist)
	d.Engine.checkSecrets(c, "engine", allowed)
	for _, name := range slices.Sorted(maps.Keys(d.Engines)) {
		d.Engines[name].checkSecrets(c, join("engines", name), allowed)
	}
	checkGraders(c, d.Graders, allowed)
	d.Notify.check(c, "notify", d.Cloud.Configured(), allowed)
	d.Trials.check(c, "trials")
	d.Defaults.check(c, "defaults")
	checkPlugins(c, d.Plugins, d.Cloud.Configured())
	c.services("defaults.grade", d.Defaults.Grades, d.Graders, d.Plugins)
}

// check enforces the rules against split brain: a worker fences itself before
// another worker takes over its shards, and the skew budget is too small to
// hide two missed heartbeats.
// checkEngines checks the named engines, and that pools name them.
func (d Deployment) checkEngines(c *checker) {
	names := slices.Sorted(maps.Keys(d.Engines))
	for _, name := range names {
		at, e := join("engines", name), d.Engines[name]
		c.label(at, name, maxPool, "")
		e.check(c, at)
		if servers := e.Servers(); len(servers) == 0 || inProcess(servers[0]) {
			c.add(at+".url", "must name a server: %q and %q are for [engine] alone", EngineTiny, EngineMock)
		}
	}
	for i, p := range d.Pools {
		at := element("pool", i) + ".engine"
		switch _, known := d.Engines[p.Engine]; {
		case p.Engine == "":
		case p.Trains():
			c.add(at, "a training asks no engine: remove it")
		case d.Cloud.Configured():
			c.add(at, "the machines of a pool in a cloud serve its model themselves: remove it")
		case !known:
			c.add(at, "no engine is named %s: add [engines.%s] with its url", quote(p.Engine), p.Engine)
		}
	}
}

// checkSecrets checks that the engine's secrets may be read.
func (e Engine) checkSecrets(c *checker, at string, allowed []string) {
	if s := e.Secret; s != "" && !slices.Contains(allowed, s) {
		c.add(at+".secret", "%s is not in the allowlist: add it to secrets", quote(s))
	}
	for _, s := range e.Request.secretsOf() {
		if !slices.Contains(allowed, s) {
			c.add(at+".headers", "%s is not in the allowlist: add it to secrets", quote(s))
		}
	}
}

func (p PromptsFolder) check(c *checker, at string, inCloud bool) {
	if p.Settle <= 0 || p.Settle > maxSettle {
		c.add(at+".settle", "must be longer than 0s and at most %s, is %s", maxSettle.Std(), p.Settle.Std())
	}
	if inCloud && p != DefaultPromptsFolder() {
		c.add(at+".settle", "objects of a bucket appear whole: remove it")
	}
}

func (s WorkStorage) check(c *checker, at string, inCloud bool) {
	values := []string{KeepWorkIndex, KeepWorkAll}
	if !slices.Contains(values, s.KeepWork) {
		c.oneOf(at+".keep_work", "value", s.KeepWork, values)
	}
	if inCloud && s.KeepWork == KeepWorkAll {
		c.add(at+".keep_work", "the lifecycle of the bucket deletes work files: remove it")
	}
	if d := s.KeepDocuments; d < 0 || d > 0 && d < minKeepDocuments {
		c.add(at+".keep_documents", "must be \"0s\", which keeps them, or at least %s, is %s",
			minKeepDocuments.Std(), d.Std())
	}
}

func (h Health) check(c *checker, at string) {
	c.positive(at+".heartbeat_interval", h.Interval)
	c.positive(at+".self_fence_timeout", h.SelfFence)
	c.positive(at+".failure_timeout", h.FailureTimeout)
	c.notNegative(at+".skew_budget", h.SkewBudget)
	if h.SelfFence >= h.FailureTimeout {
		c.add(at+".self_fence_timeout", "must be shorter than failure_timeout (%s), is %s: "+
			"a worker must stop before another one takes over its shards", h.FailureTimeout.Std(), h.SelfFence.Std())
	}
	if h.SkewBudget/2 >= h.Interval {
		c.add(at+".skew_budget", "must be shorter than twice heartbeat_interval (%s), is %s: "+
			"a larger one hides missed heartbeats", h.Interval.Std(), h.SkewBudget.Std())
	}
	if h.Interval > 0 && h.SelfFence <= h.Interval {
		c.add(at+".heartbeat_interval", "must be shorter than self_fence_timeout (%s), is %s: "+
			"a worker would fence itself between two heartbeats", h.SelfFence.Std(), h.Interval.Std())
	}
}

func (o Online) check(c *checker, at string, inCloud bool) {
	c.float(at+".share", &o.Share, atLeast(0), atMost(1))
	c.integer(at+".queue", &o.Queue, 0, maxOnlineQueue, "")
	if o.MaxWait < 0 || o.MaxWait > maxOnlineWait {
		c.add(at+".max_wait", "must be at most %s, is %s", maxOnlineWait.Std(), o.MaxWait.Std())
	}
	if inCloud && o != DefaultOnline() {
		c.add(at, "online requests are for an installation on one machine: remove the table")
	}
}

func (w Worker) check(c *checker, at string) {
	c.integer(at+".in_flight", &w.InFlight, 0, maxInFlight, "")
	c.integer(at+".min_in_flight", &w.MinInFlight, 1, maxInFlight, "")
	c.integer(at+".max_in_flight", &w.MaxInFlight, 1, maxInFlight, "")
	if w.MinInFlight > w.MaxInFlight {
		c.add(at+".max_in_flight", "must be at least min_in_flight (%d), is %d", w.MinInFlight, w.MaxInFlight)
	}
	c.positive(at+".checkpoint", w.CheckpointInterval)
	c.positive(at+".progress_timeout", w.ProgressTimeout)
	c.notNegative(at+".request_timeout", w.RequestTimeout)
	c.notNegative(at+".drain_budget", w.DrainBudget)
}

// check accepts "tiny", "mock", and HTTP base URLs without credentials, which
// belong in the engine's secret. It also accepts an engine without URLs: a flag
// may name the servers, and the default is "tiny".
func (e Engine) check(c *checker, at string) {
	if e.Secret != "" {
		c.label(at+".secret", e.Secret, maxSecret, "")
	}
	e.Request.check(c, at, true)
	if r := e.Ready; r != "" && r != ReadyAuto && r != ReadyNone && (!strings.HasPrefix(r, "/") || len(r) > maxText) {
		c.add(at+".ready", "%s is not known: use %q, %q, or a path from the server's root such as \"/readyz\"",
			quote(r), ReadyAuto, ReadyNone)
	}
	switch e.Stream {
	case "", StreamAuto, StreamAlways, StreamNever:
	default:
		c.add(at+".stream", "%s is not known: use %q, %q or %q", quote(e.Stream), StreamAuto, StreamAlways, StreamNever)
	}
	c.integer(at+".in_flight", &e.InFlight, 0, maxInFlight, "")
	c.price(at+".prompt_price", e.PromptPrice, aMillionTokens)
	c.price(at+".completion_price", e.CompletionPrice, aMillionTokens)
	if e.URL != "" && len(e.URLs) > 0 {
		c.add(at+".urls", "url also names the engine: remove one of them")
	}
	if e.URL != "" && !inProcess(e.URL) {
		c.server(at+".url", e.URL, notAnEngine, "engine.secret")
	}
	if len(e.URLs) > maxServers {
		c.add(at+".urls", "must list at most %d servers, lists %d", maxServers, len(e.URLs))
		return
	}
	for i, u := range e.URLs {
		switch {
		case inProcess(u) && len(e.URLs) > 1:
			c.add(element(at+".urls", i), "%q is not a server: set it alone, as url", u)
		case !inProcess(u) && slices.Contains(e.URLs[:i], u):
			c.add(element(at+".urls", i), "%s is listed twice: name each server once", quote(u))
		case !inProcess(u):
			c.server(element(at+".urls", i), u, notAnEngine, "engine.secret")
		}
	}
}

// notAnEngine is the problem of a string that names no engine.
var notAnEngine = fmt.Sprintf("must be %q, %q or a base URL such as \"http://127.0.0.1:8000/v1\"",
	EngineTiny, EngineMock)

// server checks the address of a server. Its problem is wrong if it is none.
// secret is the key that names the secret of the server.
func (c *checker) server(field, base, wrong, secret string) {
	u, err := url.Parse(base)
	switch {
	case len(base) > maxText || err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		c.add(field, "%s", wrong)
	case u.User != nil:
		c.add(field, "must not hold a user or password: put the key into a secret and name it as %s", secret)
	case u.RawQuery != "" || u.Fragment != "":
		c.add(field, "must not have a query or fragment: remove what follows the path")
	}
}

func checkPools(c *checker, pools []Pool, provider string) {
	names, models := map[string]bool{}, map[string]bool{}
	for i, p := range pools {
		at := element("pool", i)
		c.label(at+".name", p.Name, maxPool, "")
		if p.Name != "" && names[p.Name] {
			c.add(at+".name", "%s is the name of an earlier pool: give each pool its own", quote(p.Name))
		}
		if strings.HasSuffix(p.Name, deadLetterSuffix) {
			c.add(at+".name", "%s ends like the names of dead-letter queues: give the pool another name", quote(p.Name))
		}
		if p.Model == "" {
			c.add(at+".model", "missing: name the model that the pool serves")
		}
		c.text(at+".model", p.Model, maxText)
		c.text(at+".revision", p.Revision, maxText)
		if p.Executor != "" && p.Executor != ExecutorInfer && !p.Trains() && !p.Pipelined() {
			c.oneOf(at+".executor", "executor", p.Executor, []string{ExecutorInfer, ExecutorTrain, ExecutorPipeline})
		}
		checkMachines(c, at+".machines", p.Machines, provider)
		p.checkProvisioning(c, at+".provisioning", provider)
		p.checkMachineKeys(c, at, provider)
		c.price(at+".price", p.Price, anHour)
		c.integer(at+".requests_per_minute", &p.RequestsPerMinute, 0, maxPerMinute, "")
		c.integer(at+".tokens_per_minute", &p.TokensPerMinute, 0, maxPerMinute, "")
		names[p.Name] = true
		if p.Trains() {
			p.checkTrains(c, at, pools[:i])
			continue
		}
		if p.Name == trainPool {
			c.add(at+".name", "%s is the name of the built-in training pool: give this pool another name", quote(trainPool))
		}
		if p.Model != "" && models[p.Model] {
			c.add(at+".model", "%s is served by an earlier pool: declare one pool for each model", quote(p.Model))
		}
		models[p.Model] = true
	}
}

// checkMachines adds the problem of a pool's machines. provider is the name of the cloud's
// provider, or "".
func checkMachines(c *checker, at, machines, provider string) {
	switch {
	case machines == "" || machines == MachinesGroup:
	case machines != MachinesCloudRun:
		c.oneOf(at, "kind of machines", machines, []string{MachinesGroup, MachinesCloudRun})
	default:
		if p, ok := providerOf(provider); !ok || !p.jobs {
			c.add(at, "the installation's provider has no machines %s: remove it", quote(machines))
		}
	}
}

// checkProvisioning adds the problem of how the pool's machines are bought. provider is the
// name of the cloud's provider, or "".
func (p Pool) checkProvisioning(c *checker, at, provider string) {
	of, inCloud := providerOf(provider)
	switch {
	case p.Provisioning == "":
	case !inCloud:
		c.add(at, "an installation outside a cloud buys no machines: remove it")
	case p.Machines == MachinesCloudRun:
		c.add(at, "tasks of Cloud Run are bought in one way only: remove it")
	case !slices.Contains(of.provisioning, p.Provisioning):
		c.oneOf(at, "way to buy machines", p.Provisioning, of.provisioning)
	}
}

func (p Pool) checkTrains(c *checker, at string, earlier []Pool) {
	if p.Model != "" && p.Model != ModelTiny {
		c.add(at+".model", "%s can't be trained here: set the model of a pool with the executor %q to %q",
			quote(p.Model), ExecutorTrain, ModelTiny)
	}
	const asksNothing = "a training asks no engine: remove it"
	if p.RequestsPerMinute > 0 {
		c.add(at+".requests_per_minute", asksNothing)
	}
	if p.TokensPerMinute > 0 {
		c.add(at+".tokens_per_minute", asksNothing)
	}
	if p.IgnoreServerLimits {
		c.add(at+".ignore_server_limits", asksNothing)
	}
	if slices.ContainsFunc(earlier, Pool.Trains) {
		c.add(at+".executor", "an earlier pool trains: declare one training pool, and start several workers in it")
	}
}

// label checks a name of a-z, 0-9, '-' and the extra character.
func (c *checker) label(field, s string, limit int, extra string) {
	if s == "" {
		c.add(field, "missing: give it a name of a-z, 0-9 and -%s", extra)
		return
	}
	ok := len(s) <= limit
	for _, r := range s {
		ok = ok && (r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || extra == string(r))
	}
	if !ok {
		c.add(field, "%s is not a valid name: use 1 to %d of a-z, 0-9 and -%s", quote(s), limit, extra)
	}
}
