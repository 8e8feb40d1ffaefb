package config

import (
	"net"
	"net/url"
	"slices"
	"strings"
)

// Deployment is the config of one installation: rollout.toml in the folder of an
// installation on one machine, or the file that is deployed to a cloud. Every
// key has a default, except the provider, region and bucket of a cloud; see
// DefaultDeployment.
type Deployment struct {
	SchemaVersion int           `toml:"schema_version"`
	Bucket        string        `toml:"bucket"` // part of run ids; "local" by default, in a cloud the bucket's name
	Cloud         Cloud         `toml:"cloud"`
	Input         PromptsFolder `toml:"input"`
	Storage       WorkStorage   `toml:"storage"`
	Health        Health        `toml:"health"`
	Worker        Worker        `toml:"worker"`
	Online        Online        `toml:"online"`
	Engine        Engine        `toml:"engine"` // of pools that name none
	// Engines are further engines, by the names by which pools name them.
	Engines map[string]Engine `toml:"engines"`
	Pools   []Pool            `toml:"pool"`
	// Pipeline is for pools with ExecutorPipeline.
	Pipeline Pipeline `toml:"pipeline"`
	// Graders are the scoring services that the graders of runs may name.
	Graders map[string]GraderService `toml:"graders"`
	// Plugins are the plugins that workers load.
	Plugins  map[string]Plugin `toml:"plugins"`
	Notify   Notify            `toml:"notify"`
	Secrets  []string          `toml:"secrets"` // allowlist of secret names; ParseDeployment adds cloud.secrets
	Trials   Trials            `toml:"trials"`
	Defaults Run               `toml:"defaults"`
}

// PromptsFolder says when a file among the prompts of an installation on one machine is
// complete. In a bucket of a cloud, objects appear whole.
type PromptsFolder struct {
	// Settle is how long a file must not have changed before it becomes a run; default: 1s.
	Settle Duration `toml:"settle"`
}

// WorkStorage says what an installation keeps of a run that has ended besides its output
// files. In a cloud, the bucket's lifecycle decides about work files.
type WorkStorage struct {
	// KeepWork is KeepWorkIndex or KeepWorkAll; default: KeepWorkIndex. It is for one machine.
	KeepWork string `toml:"keep_work"`
	// KeepDocuments is how long after its end the documents of a run are kept, and its work
	// files on one machine; 0, the default, keeps them.
	KeepDocuments Duration `toml:"keep_documents"`
}

// Values of WorkStorage.KeepWork.
const (
	KeepWorkIndex = "index" // what retries and questions about items read
	KeepWorkAll   = "all"   // also the results and checkpoints of shards
)

// Health holds the timings of heartbeats. The defaults are DefaultHealth, and
// DefaultCloudHealth in a cloud. Check requires: interval < self-fence timeout <
// failure timeout, and skew budget < 2 × interval.
type Health struct {
	Interval       Duration `toml:"heartbeat_interval"`
	SelfFence      Duration `toml:"self_fence_timeout"`
	FailureTimeout Duration `toml:"failure_timeout"`
	SkewBudget     Duration `toml:"skew_budget"`
}

// Worker holds the settings of the worker loop.
type Worker struct {
	// InFlight is the number of concurrent requests. With 0 the worker finds, for
	// each server, the number between MinInFlight and MaxInFlight that gives the
	// most throughput.
	InFlight           int      `toml:"in_flight"`
	MinInFlight        int      `toml:"min_in_flight"`    // of each server; default: 4
	MaxInFlight        int      `toml:"max_in_flight"`    // of each server; default: 512
	CheckpointInterval Duration `toml:"checkpoint"`       // between checkpoints of unfinished work; default: 60s
	ProgressTimeout    Duration `toml:"progress_timeout"` // longest time without data of a request; default: 120s
	RequestTimeout     Duration `toml:"request_timeout"`  // longest duration of a request; 0 disables it
	DrainBudget        Duration `toml:"drain_budget"`     // default: 15s; in a cloud 60s
}

// Online holds the settings of online requests: those of clients that wait for the answer.
// They are for an installation on one machine.
type Online struct {
	// Share is the part of a worker's requests at once that may be online ones, 0 to 1; 0
	// refuses online requests. Default: 0.5.
	Share float64 `toml:"share"`
	// Queue is how many online requests may wait for a slot of each worker; default: 64.
	Queue int `toml:"queue"`
	// MaxWait is how long an online request may wait for a slot; default: 30s.
	MaxWait Duration `toml:"max_wait"`
}

// Engine names an inference engine: "tiny" (the built-in model), "mock", the base
// URL of an OpenAI-compatible server, or the base URLs of several servers with
// the same models.
type Engine struct {
	URL    string   `toml:"url"`
	URLs   []string `toml:"urls"`
	Secret string   `toml:"secret"` // name of the secret that holds the API key of all servers; optional
	// ClampMaxTokens repeats a request whose max_tokens exceeds the model's
	// context, with the largest value that fits.
	ClampMaxTokens bool `toml:"clamp_max_tokens"`
	// Ready says how a worker finds out whether a server is ready: ReadyAuto, ReadyNone,
	// or a path from the server's root that answers 200.
	Ready string `toml:"ready"`
	// Stream says which answers are streamed: StreamAuto, StreamAlways or StreamNever.
	Stream string `toml:"stream"`
	// InFlight is the number of concurrent requests of a worker to these servers; 0 is
	// Worker.InFlight.
	InFlight int `toml:"in_flight"`
	// PromptPrice and CompletionPrice are what a million tokens cost, in dollars; 0 is
	// free or unknown.
	PromptPrice     float64 `toml:"prompt_price"`
	CompletionPrice float64 `toml:"completion_price"`
	// Tensors lets rows bring serialized tensors, such as prompt_embeds, which the server
	// deserializes.
	Tensors bool `toml:"tensors"`
	// Request is what all requests to these servers have.
	Request
}

// Values of Engine.Ready besides a path. "" means ReadyAuto.
const (
	ReadyAuto = "auto" // by its list of models and /health, and a question where they say no
	ReadyNone = "none" // it always is
)

// Values of Engine.Stream. "" means StreamAuto.
const (
	StreamAuto   = "auto" // those whose progress nothing else shows
	StreamAlways = "always"
	StreamNever  = "never"
)

// normalize replaces shorthands in the file's tree before it is bound.
func (*Infer) normalize(c *checker, tree map[string]any) {
	normalizeRequest(c, tree["engine"], "engine")
	normalizeRequest(c, tree["request"], "request")
}

// Dollars returns what the tokens cost at the engine's prices.
func (e Engine) Dollars(promptTokens, completionTokens float64) float64 {
	return (promptTokens*e.PromptPrice + completionTokens*e.CompletionPrice) / 1e6
}

// HasPrices reports whether the engine's tokens have a price.
func (e Engine) HasPrices() bool { return e.PromptPrice > 0 || e.CompletionPrice > 0 }

// Servers returns the engine's base URLs, or its one name "tiny" or "mock". It is
// empty if the config names no engine.
func (e Engine) Servers() []string {
	if e.URL != "" {
		return []string{e.URL}
	}
	return e.URLs
}

// InProcess reports whether the engine runs inside the worker: tiny or mock.
func (e Engine) InProcess() bool {
	names := e.Servers()
	return len(names) == 1 && inProcess(names[0])
}

func inProcess(name string) bool { return name == EngineTiny || name == EngineMock }

// WithURLs returns the engine with other URLs, such as those of a command line.
// Without URLs it returns the engine unchanged.
func (e Engine) WithURLs(urls []string) Engine {
	switch len(urls) {
	case 0:
	case 1:
		e.URL, e.URLs = urls[0], nil
	default:
		e.URL, e.URLs = "", urls
	}
	return e
}

// String lists the servers, for messages.
func (e Engine) String() string { return strings.Join(e.Servers(), ", ") }

// GraderService is a scoring service: a table [graders.NAME]. Workers send it
// answers in batches, and it returns their scores.
type GraderService struct {
	URL    string `toml:"url"`
	Secret string `toml:"secret"` // name of the secret that is sent as bearer token; optional
	Batch  int    `toml:"batch"`  // answers of a request, at most; default: 16
	// Concurrency is how many requests a worker has in flight; default: 4.
	Concurrency int      `toml:"concurrency"`
	Timeout     Duration `toml:"timeout"` // longest request; default: 30s
	Retries     int      `toml:"retries"` // of a request that failed, with backoff; default: 8
	// MaxWait is how long an answer waits for its score, all tries together;
	// default: 5m. An answer without a score by then is kept without one.
	MaxWait Duration `toml:"max_wait"`
}

// setDefaults sets the defaults, over which the binder writes a file's values.
func (s *GraderService) setDefaults() { *s = DefaultGraderService() }

// Pool is a set of workers with the same model and executor.
type Pool struct {
	Name     string `toml:"name"`
	Model    string `toml:"model"`
	Revision string `toml:"revision"` // of the model; optional; part of the model's identity
	Engine   string `toml:"engine"`   // name of an entry of Deployment.Engines; "" is Deployment.Engine
	// Executor is ExecutorInfer, ExecutorTrain or ExecutorPipeline; default: ExecutorInfer.
	Executor string `toml:"executor"`
	// Machines is MachinesGroup or, on Google Cloud, MachinesCloudRun; default:
	// MachinesGroup.
	Machines string `toml:"machines"`
	// Provisioning is how the machines of a group are bought; default: ProvisioningSpot.
	Provisioning string `toml:"provisioning"`
	PoolMachines
	// Price is what a machine of the pool costs in an hour, in dollars; 0 is the list price of
	// its type, and outside a cloud unknown.
	Price float64 `toml:"price"`
	// RequestsPerMinute and TokensPerMinute are what all workers of the pool together may
	// ask the engine in any minute; 0 sets no limit. Tokens are those of prompts and
	// answers.
	RequestsPerMinute int `toml:"requests_per_minute"`
	TokensPerMinute   int `toml:"tokens_per_minute"`
	// IgnoreServerLimits has the workers keep to those alone, whatever the server says of
	// its own limits.
	IgnoreServerLimits bool `toml:"ignore_server_limits"`
}

// Executors of pools.
const (
	ExecutorInfer = "infer" // answers prompts with an engine
	ExecutorTrain = "train" // trains ModelTiny; needs no engine
	// ExecutorPipeline answers prompts with ModelTiny or a stand-in for a generator of
	// latents, in a group of processes.
	ExecutorPipeline = "pipeline"
)

// Machines of pools in a cloud.
const (
	MachinesGroup    = "group"     // virtual machines
	MachinesCloudRun = "cloud-run" // tasks of a job of Cloud Run
)

// How the machines of a pool's group are bought.
const (
	ProvisioningSpot      = "spot"       // cheap, and taken away at any time
	ProvisioningFlexStart = "flex-start" // waits for capacity, then stays for 7 days at most
	ProvisioningStandard  = "standard"   // at the list price
)

// Trains reports whether the pool's workers train models.
func (p Pool) Trains() bool { return p.Executor == ExecutorTrain }

// Limited reports whether the pool's workers share a limit of the config.
func (p Pool) Limited() bool { return p.RequestsPerMinute > 0 || p.TokensPerMinute > 0 }

// Pipelined reports whether each worker of the pool is a group of processes.
func (p Pool) Pipelined() bool { return p.Executor == ExecutorPipeline }

// LearnsLimits reports whether the pool's workers share the limits that their server
// states, or that its refusals show. That takes one server for all of them: of several,
// each may have limits of its own, and where each worker has a machine, perMachine, so
// has a server on the loopback address.
func (d Deployment) LearnsLimits(pool string, perMachine bool) bool {
	p, e := d.Pool(pool), d.ForPool(pool).Engine
	servers := e.Servers()
	if p.Trains() || p.Pipelined() || p.IgnoreServerLimits || e.InProcess() || len(servers) != 1 {
		return false
	}
	at, err := url.Parse(servers[0])
	if err != nil { // whoever connects refuses it
		return false
	}
	ip := net.ParseIP(at.Hostname())
	return !perMachine || at.Hostname() != "localhost" && !ip.IsLoopback()
}

// Pool returns the pool of that name, or the zero Pool.
func (d Deployment) Pool(name string) Pool {
	for _, p := range d.Pools {
		if p.Name == name {
			return p
		}
	}
	return Pool{}
}

// DefaultPool is the name of the pool of a deployment that declares none. A pool of that
// name takes the runs that name no model.
const DefaultPool = "default"

// ForPool returns the deployment as the workers of a pool see it: Engine is that of the
// pool, and Worker.InFlight the number of its requests. Repeating it changes nothing.
func (d Deployment) ForPool(name string) Deployment {
	d.Pools = slices.Clone(d.Pools)
	for i := range d.Pools {
		if p := &d.Pools[i]; p.Name == name && p.Engine != "" {
			d.Engine, p.Engine = d.Engines[p.Engine], ""
		}
	}
	if d.Engine.InFlight > 0 {
		d.Worker.InFlight, d.Engine.InFlight = d.Engine.InFlight, 0
	}
	return d
}

// InferPools returns the pools whose workers answer prompts.
func (d Deployment) InferPools() (out []Pool) {
	for _, p := range d.Pools {
		if !p.Trains() {
			out = append(out, p)
		}
	}
	return out
}

// TrainPool returns the training pool, and whether the deployment declares it.
// The built-in pool stands in for an undeclared one; its worker starts when a
// training is submitted.
func (d Deployment) TrainPool() (p Pool, declared bool) {
	for _, p := range d.Pools {
		if p.Trains() {
			return p, true
		}
	}
	return Pool{Name: trainPool, Model: ModelTiny, Executor: ExecutorTrain}, false
}

// trainPool is the name of the built-in training pool.
const trainPool = "train"

// Infer is the file of `rollout infer batch --config`.
type Infer struct {
	SchemaVersion int                      `toml:"schema_version"` // optional here
	Model         Model                    `toml:"model"`
	Sampling      Sampling                 `toml:"sampling"`
	Request       *Request                 `toml:"request"`
	Input         InferInput               `toml:"input"`
	Output        InferOutput              `toml:"output"`
	Workers       InferWorkers             `toml:"workers"`
	Engine        Engine                   `toml:"engine"`
	Storage       InferStorage             `toml:"storage"`
	Shard         Shard                    `toml:"shard"`
	Limits        Limits                   `toml:"limits"`
	Dedupe        Dedupe                   `toml:"dedupe"`
	Grades        []Grade                  `toml:"grade"`
	Graders       map[string]GraderService `toml:"graders"`
	Plugins       map[string]Plugin        `toml:"plugins"`
	Health        Health                   `toml:"health"`
	Worker        Worker                   `toml:"worker"`
}

// InferInput names the prompts files. All files that match the glob have one
// output.
type InferInput struct {
	Glob    string `toml:"glob"`
	Dialect string `toml:"dialect"`
}

// InferOutput names the folder of completions.jsonl.
type InferOutput struct {
	Dir string `toml:"dir"`
}

// InferWorkers holds the number of worker processes.
type InferWorkers struct {
	Count int `toml:"count"` // at least 1; default: 1
}

// InferStorage names the folder of the run's state, and says what stays there.
type InferStorage struct {
	Path     string `toml:"path"`      // default: <output.dir>/.rollout
	KeepWork string `toml:"keep_work"` // as WorkStorage.KeepWork
}
