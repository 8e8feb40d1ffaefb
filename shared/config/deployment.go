package config

import "strings"

// Deployment is the config of one installation: D/rollout.toml on a laptop, and
// what is deployed to a cloud. Everything in it has a default but where in a
// cloud it is; see DefaultDeployment.
type Deployment struct {
	SchemaVersion int      `toml:"schema_version"`
	Bucket        string   `toml:"bucket"` // the bucket's name, part of run ids; "local", or a cloud's
	Cloud         Cloud    `toml:"cloud"`
	Health        Health   `toml:"health"`
	Worker        Worker   `toml:"worker"`
	Engine        Engine   `toml:"engine"`
	Pools         []Pool   `toml:"pool"`
	Secrets       []string `toml:"secrets"` // allowlist of secret names, with the cloud's
	Defaults      Run      `toml:"defaults"`
}

// Health holds the timings of heartbeats. Defaults: 500ms, 4s, 5s, 250ms;
// in a cloud DefaultCloudHealth.
// Refused: self-fence ≥ failure timeout; skew budget ≥ 2 × interval.
type Health struct {
	Interval       Duration `toml:"heartbeat_interval"`
	SelfFence      Duration `toml:"self_fence_timeout"`
	FailureTimeout Duration `toml:"failure_timeout"`
	SkewBudget     Duration `toml:"skew_budget"`
}

// Worker holds the settings of the worker loop.
type Worker struct {
	InFlight           int      `toml:"in_flight"`        // requests at once; 0 finds what each server makes the most of
	MinInFlight        int      `toml:"min_in_flight"`    // of each server, if in_flight is 0; 4
	MaxInFlight        int      `toml:"max_in_flight"`    // of each server, if in_flight is 0; 512
	CheckpointInterval Duration `toml:"checkpoint"`       // unfinished work between checkpoints; 60s
	ProgressTimeout    Duration `toml:"progress_timeout"` // longest silence of a request; 120s
	RequestTimeout     Duration `toml:"request_timeout"`  // longest request; 0 is none
	DrainBudget        Duration `toml:"drain_budget"`     // 15s; in a cloud 60s
}

// Engine names an inference engine: "tiny", which has a model of its own,
// "mock", the base URL of an OpenAI-compatible server, or those of several that
// serve the same models.
type Engine struct {
	URL    string   `toml:"url"`
	URLs   []string `toml:"urls"`
	Secret string   `toml:"secret"` // name of the API key's secret, for all servers; "" is none
	// ClampMaxTokens asks again with what fits, if max_tokens does not fit the
	// model's context.
	ClampMaxTokens bool `toml:"clamp_max_tokens"`
}

// Servers are the engine's URLs, "tiny" or "mock"; none if nobody named one.
func (e Engine) Servers() []string {
	if e.URL != "" {
		return []string{e.URL}
	}
	return e.URLs
}

// InProcess reports whether the engine lives in its worker: tiny or mock.
func (e Engine) InProcess() bool {
	names := e.Servers()
	return len(names) == 1 && inProcess(names[0])
}

func inProcess(name string) bool { return name == EngineTiny || name == EngineMock }

// WithURLs returns the engine at other URLs, as a command line names them; with none
// it is as it was.
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

// String names the servers, for messages.
func (e Engine) String() string { return strings.Join(e.Servers(), ", ") }

// Pool is a set of workers that do one thing with one model.
type Pool struct {
	Name     string `toml:"name"`
	Model    string `toml:"model"`
	Revision string `toml:"revision"` // of the model, where it is known; a part of its identity
	Executor string `toml:"executor"` // ExecutorInfer if unset, or ExecutorTrain
}

// Executors of pools.
const (
	ExecutorInfer = "infer" // answers prompts with an engine
	ExecutorTrain = "train" // trains ModelTiny; needs no engine
)

// Trains reports whether the pool's workers train.
func (p Pool) Trains() bool { return p.Executor == ExecutorTrain }

// InferPools returns the pools whose workers answer prompts.
func (d Deployment) InferPools() (out []Pool) {
	for _, p := range d.Pools {
		if !p.Trains() {
			out = append(out, p)
		}
	}
	return out
}

// TrainPool returns the pool that trains, and whether the deployment declares
// it. Else it is one that every installation has, and whose worker is started
// when there is something to train.
func (d Deployment) TrainPool() (p Pool, declared bool) {
	for _, p := range d.Pools {
		if p.Trains() {
			return p, true
		}
	}
	return Pool{Name: trainPool, Model: ModelTiny, Executor: ExecutorTrain}, false
}

// trainPool is the name of the pool that every installation has.
const trainPool = "train"

// Infer is the file of `rollout infer batch --config`.
type Infer struct {
	SchemaVersion int          `toml:"schema_version"` // optional here
	Model         Model        `toml:"model"`
	Sampling      Sampling     `toml:"sampling"`
	Input         InferInput   `toml:"input"`
	Output        InferOutput  `toml:"output"`
	Workers       InferWorkers `toml:"workers"`
	Engine        Engine       `toml:"engine"`
	Storage       InferStorage `toml:"storage"`
	Shard         Shard        `toml:"shard"`
	Limits        Limits       `toml:"limits"`
	Dedupe        Dedupe       `toml:"dedupe"`
	Health        Health       `toml:"health"`
	Worker        Worker       `toml:"worker"`
}

// InferInput names the prompts files: a glob over many, one output.
type InferInput struct {
	Glob    string `toml:"glob"`
	Dialect string `toml:"dialect"`
}

// InferOutput names the folder of completions.jsonl.
type InferOutput struct {
	Dir string `toml:"dir"`
}

// InferWorkers is the number of worker processes; at least 1.
type InferWorkers struct {
	Count int `toml:"count"`
}

// InferStorage is where the state is kept; "" is <output.dir>/.rollout.
type InferStorage struct {
	Path string `toml:"path"`
}
