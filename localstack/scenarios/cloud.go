package scenarios

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"rollout/shared/cloud"
	"rollout/shared/ownership"
)

// Cloud deploys installations, as the tests of one cloud do.
type Cloud struct {
	Provider string // the config's cloud.provider
	Program  string // path of the program rollout
	Parallel bool   // installations may be deployed at the same time
	// Leads are the times between a notice and the end of a machine.
	Leads []time.Duration
	// Deploy deploys an installation until the test ends. Its objects have the Prefix, and
	// its pool is Pool, beside TrainingPool if the settings ask for that.
	Deploy func(t *testing.T, s Settings) Installation
}

// Prefix is the prefix of an installation's objects, and Pool the name of the pool that
// answers prompts.
const (
	Prefix = "team-a/"
	Pool   = "default"
)

// Settings are what a scenario needs of an installation.
type Settings struct {
	Server   string        // address of the inference server; "" for the worker's mock engine
	Machines int           // the largest number of machines
	Idle     time.Duration // after which a machine without work leaves; 0: a minute
	// FromNone lets machines come by themselves. Otherwise all work from the start.
	FromNone bool
	// Trains adds a training pool, TrainingPool.
	Trains bool
	// More is further config.
	More string
	// Told gets what people are told by the cloud's own channel; nil is not asked.
	Told *Inbox
	// Webhook is served over TLS to the functions, as the webhook of the config, whose secret
	// is WebhookSecret; nil has none.
	Webhook http.Handler
	// Faults, if not 0, is the seed of faults: messages come more than once and in any
	// order, replies are lost, and requests are refused for the moment.
	Faults uint64
}

// Fleet returns the lines of the config's table cloud.fleet.
func (s Settings) Fleet() string {
	idle := s.Idle
	if idle == 0 {
		idle = time.Minute
	}
	return fmt.Sprintf("max_machines = %d\nshards_per_machine = 4\nboot_pause = \"1s\"\nidle = %q\n", s.Machines, idle)
}

// SmallShards are config of an installation and of the runs in it, on a laptop and in a
// cloud: some hundred items keep several workers busy for a while.
const SmallShards = `
[worker]
in_flight = 4
checkpoint = "2s"
drain_budget = "2s"
[defaults]
schema_version = 1
kind = "batch"
[defaults.shard]
items = 8
[defaults.limits]
grace = "500ms"
[[pool]]
name = "default"
model = "fake"
`

// itemsOfAShard is the number of items of a shard, by SmallShards.
const itemsOfAShard = 8

// Config returns the config beside the tables cloud and health, which are the cloud's own.
func (s Settings) Config() string {
	text := fmt.Sprintf("[engine]\nurl = %q\n", engineAt(s.Server)) + s.More + SmallShards
	if s.Trains {
		text += fmt.Sprintf("[[pool]]\nname = %q\nmodel = \"rollout/tiny\"\nexecutor = \"train\"\n", TrainingPool)
	}
	return text
}

// engineAt returns the engine's URL of an inference server, or of the mock engine for "".
func engineAt(server string) string {
	if server == "" {
		return "mock"
	}
	return server + "/v1"
}

// Installation is a deployed installation. Only the test's goroutine may call it. If the test
// fails, it logs what its programs wrote.
type Installation interface {
	// Stores are its stores, for the test alone.
	Stores() cloud.Stores
	// Reclaim is the installation as the function reclaim opens it, with its rights where the
	// provider's stand-in can give a test those.
	Reclaim() ownership.CloudInstallation
	// Upload puts an object, as the bucket's owner may, and returns its version. The cloud
	// announces it.
	Upload(key, content string) (version string)
	// Announce tells the installation of an object again, by each way that events take. The
	// object need not be one that the cloud announces.
	Announce(o Object)
	// Folder is a folder with the installation's rollout.toml.
	Folder() string
	// Environment is the environment of a user's commands.
	Environment() []string
	// Get answers a request to the API, of a caller who may send it.
	Get(path string) []byte
	// Machines are those that exist.
	Machines() []Machine
	// BreakMachines says whether machines that come from now on fail before their worker
	// starts. The first call comes before the first machine.
	BreakMachines(broken bool)
	// Crash kills a process of a function with SIGKILL. The next call starts another one.
	Crash(function string)
	// Minutes is how many times the timer has called its function. Its minutes are short.
	Minutes() int
	// Check fails the test unless what the cloud alone promises holds. With the ended runs
	// of the installation it can check how much they have caused.
	Check(ended ...Outcome)
}

// Object is an object that Announce announces. Its name begins with the prefix of the
// installation that it belongs to.
type Object struct {
	Name, Version string
	Size          int64
}

// Machine is a machine with a worker.
type Machine interface {
	ID() string
	// Kill kills the worker with SIGKILL. Another one comes, on this machine or on another.
	Kill()
	// Preempt announces, by all ways of the cloud, that the machine is taken back after the
	// lead, and takes it back then. Another one comes.
	Preempt(lead time.Duration)
	// Insist tells a machine that is preempted again, by all ways of the cloud, and with
	// SIGTERM.
	Insist()
	// Freeze stops the worker until Resume.
	Freeze()
	Resume()
	// Ended reports whether the worker has ended for good, and Finished whether it has by
	// itself, without an error.
	Ended() bool
	Finished() bool
}
