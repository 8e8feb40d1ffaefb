package imports

// Module is the module's path.
const Module = "rollout"

// TopLevel are the folders at the top of the repository.
var TopLevel = []string{
	".ci", ".github", "events", "examples", "functions", "gpuworker", "infra", "localstack", "scripts", "shared",
}

// Rule says what the packages that match may import of the module. A pattern
// is a folder ("shared/fault"), a folder and all below it ("shared/core/..."),
// or has * for one part of a path. A package may always import itself, as its
// external tests do.
type Rule struct {
	Packages string
	Imports  []string
	Except   []string // of Imports
	StdOnly  bool     // other modules are forbidden too
}

// Sets of packages that several rules name.
var (
	ports          = []string{"shared/blob", "shared/capacity", "shared/document", "shared/queue", "shared/secret"}
	functions      = []string{"functions/...", "shared/...", "events"}
	gpuworker      = []string{"gpuworker/...", "shared/...", "events"}
	infrastructure = []string{"infra/...", "events", "shared/config", "shared/core/gpus", "shared/fault", "shared/host",
		"shared/poolcheck", "shared/queue", "shared/record"}
	programs = []string{"scripts/...", "localstack/...", "functions/...", "gpuworker/...", "shared/...", "events"}
)

// Rules is the whole map, a layer after the other, the lowest first; sorted in
// each. The first rule that matches a package holds.
var Rules = []Rule{
	// The wire contracts depend on nothing that can change under them.
	{Packages: "events", StdOnly: true},
	{Packages: "events/internal/schemagen", Imports: []string{"events"}}, // writes the JSON Schemas

	// What every package may use.
	{Packages: "shared/blake3pair"}, // assembly, which the core uses and does not hold
	{Packages: "shared/clock", StdOnly: true},
	{Packages: "shared/disk/...", Imports: []string{"shared/disk/..."}},
	{Packages: "shared/fault", StdOnly: true},
	{Packages: "shared/figures", StdOnly: true},
	{Packages: "shared/text", StdOnly: true},

	// The pure core: state and now in, state and effects out; see PurePackages.
	{Packages: "shared/core/...",
		Imports: []string{"shared/core/...", "shared/blake3pair", "shared/fault", "shared/text"}},

	// Tools and formats.
	// A pool names a server of the pure table of servers.
	{Packages: "shared/config",
		Imports: []string{"shared/core/gpus", "shared/core/servers", "shared/fault", "shared/jsonschema", "shared/text"}},
	{Packages: "shared/dialect", Imports: []string{"shared/..."}},
	{Packages: "shared/grade/...",
		Imports: []string{"shared/config", "shared/fault", "shared/grade/...", "shared/jsonl", "shared/jsonschema",
			"shared/text"}},
	{Packages: "shared/input/...", Imports: []string{"shared/..."}},
	{Packages: "shared/hub/...", Imports: []string{"shared/fault", "shared/hub/...", "shared/models", "shared/retry"}},
	{Packages: "shared/jsonl", Imports: []string{"shared/..."}},
	{Packages: "shared/jsonschema"},
	// The table of kinds decides, and wires nothing.
	{Packages: "shared/kind", Imports: []string{"shared/..."}, Except: []string{"shared/host/..."}},
	{Packages: "shared/listen", Imports: []string{"shared/..."}},
	{Packages: "shared/onlinewire", Imports: []string{"shared/fault", "shared/listen"}},
	{Packages: "shared/models", Imports: []string{"shared/blob", "shared/core/identity", "shared/fault", "shared/retry",
		"shared/clock", "shared/memory", "shared/record"}},
	{Packages: "shared/observe/...", Imports: []string{"shared/...", "events"}}, // names observability events
	{Packages: "shared/poolcheck", Imports: []string{"shared/config", "shared/core/...", "shared/fault",
		"shared/figures", "shared/hub/...", "shared/models"}},
	{Packages: "shared/record", Imports: []string{"shared/..."}},
	{Packages: "shared/rollout", Imports: []string{"shared/..."}, Except: []string{"shared/host/..."}},
	{Packages: "shared/artifact", Imports: []string{"shared/blob", "shared/core/identity", "shared/fault",
		"shared/clock", "shared/memory"}}, // the last two by its tests
	{Packages: "shared/trials", Imports: []string{"shared/..."}, Except: []string{"shared/host/...", "shared/rollout"}},
	{Packages: "shared/result", Imports: []string{"shared/..."}},
	{Packages: "shared/prices", Imports: []string{"shared/config", "shared/core/cost", "shared/fault"}},
	{Packages: "shared/retry", Imports: []string{"shared/..."}},
	{Packages: "shared/shardtable", Imports: []string{"shared/..."}},
	{Packages: "shared/snapshot/...", Imports: []string{"shared/..."}},

	// Ports and their conformance suites.
	{Packages: "shared/blob/...", Imports: []string{"shared/..."}},
	{Packages: "shared/capacity/...", Imports: []string{"shared/..."}},
	{Packages: "shared/document/...", Imports: []string{"shared/..."}},
	{Packages: "shared/queue/...", Imports: []string{"shared/..."}},
	{Packages: "shared/secret/...", Imports: []string{"shared/..."}},

	// The shell around the core: load, step, save, perform. It sends events.
	{Packages: "shared/host/...", Imports: []string{"shared/...", "events"}},

	// What a cloud provides. Drivers implement it, so that it knows none of them.
	{Packages: "shared/cloud/...", Imports: append([]string{"shared/clock", "shared/cloud/...", "shared/config",
		"shared/fault", "shared/host", "shared/observe", "events"}, ports...)},

	// Posts events to an address of the deployer.
	{Packages: "shared/webhook", Imports: []string{"events", "shared/clock", "shared/fault", "shared/retry",
		"shared/secret", "shared/text"}},

	// Drivers, one package or tree for each backend. A driver may not name another one: see Restrictions.
	{Packages: "shared/aws/...", Imports: []string{"shared/...", "events"}}, // routes events
	{Packages: "shared/embedded/bucket/...", Imports: []string{"shared/..."},
		Except: []string{"shared/embedded/sqlite/..."}},
	{Packages: "shared/embedded/internal/...", Imports: []string{"shared/fault", "shared/embedded/internal/..."}},
	{Packages: "shared/embedded/machine/...", Imports: []string{"shared/..."},
		Except: []string{"shared/embedded/sqlite/..."}},
	{Packages: "shared/embedded/sqlite/...", Imports: []string{"shared/..."}},
	{Packages: "shared/gcp/...", Imports: []string{"shared/...", "events"}}, // routes events
	{Packages: "shared/memory/...", Imports: []string{"shared/..."}},

	// Ports over the network, and the certificates of those who use them. No driver stands behind it.
	{Packages: "shared/ca", Imports: []string{"shared/clock", "shared/fault", "shared/secret"}},
	{Packages: "shared/remote/...", Imports: append([]string{"shared/ca", "shared/clock", "shared/fault",
		"shared/observe", "shared/remote/..."}, ports...)},

	// Which installation may use a bucket.
	{Packages: "shared/ownership", Imports: []string{"shared/..."}},

	// Wiring: opens what stands behind a folder or a deployed stack.
	{Packages: "shared/installation/...", Imports: []string{"shared/...", "events"}},

	// Handlers know no cloud. Those in functions/aws and functions/gcp are the
	// programs of one cloud: they open its driver directly, and link no SQLite.
	{Packages: "functions/api/...", Imports: functions},
	{Packages: "functions/aws/...", Imports: functions, Except: []string{"functions/inprocess/...", "functions/gcp/...",
		"shared/embedded/...", "shared/gcp/...", "shared/installation/..."}},
	{Packages: "functions/coordinate/...", Imports: functions},
	{Packages: "functions/diagnosis/...", Imports: []string{"functions/diagnosis/...", "functions/status/...",
		"functions/internal/judging", "shared/..."}},
	{Packages: "functions/dryrun", Imports: functions},
	{Packages: "functions/finalize/...", Imports: functions},
	{Packages: "functions/gcp/...", Imports: functions, Except: []string{"functions/aws/...", "functions/inprocess/...",
		"shared/aws/...", "shared/embedded/...", "shared/installation/..."}},
	{Packages: "functions/inprocess/...", Imports: functions}, // all handlers in one process
	{Packages: "functions/internal/...", Imports: functions},
	{Packages: "functions/interrupt/...", Imports: functions},
	{Packages: "functions/join", Imports: functions},
	{Packages: "functions/notify", Imports: functions},
	{Packages: "functions/online", Imports: functions},
	{Packages: "functions/openai", Imports: functions},
	{Packages: "functions/page", StdOnly: true}, // files, and no data
	{Packages: "functions/plan/...", Imports: functions},
	{Packages: "functions/reclaim/...", Imports: functions},
	{Packages: "functions/reflect/...", Imports: functions},
	{Packages: "functions/status/...", Imports: []string{"functions/status/...", "shared/..."}},
	{Packages: "functions/submit/...", Imports: functions},

	// Workers and functions never import each other: they meet in documents and events.
	{Packages: "gpuworker", Imports: gpuworker},
	{Packages: "gpuworker/agentproxy", Imports: []string{"gpuworker/engine", "shared/core/cost", "shared/core/ratelimit",
		"shared/fault", "shared/jsonl", "shared/listen", "shared/onlinewire"}},
	{Packages: "gpuworker/cli/...", Imports: gpuworker}, // wiring
	{Packages: "gpuworker/engine/...", Imports: gpuworker},
	{Packages: "gpuworker/executors/...", Imports: gpuworker},
	{Packages: "gpuworker/grading", Imports: gpuworker},
	{Packages: "gpuworker/isolation", Imports: []string{"shared/fault"}},
	{Packages: "gpuworker/machine", Imports: []string{"shared/config", "shared/core/servers", "shared/fault"}},
	{Packages: "gpuworker/modelcache", Imports: []string{"gpuworker/machine", "shared/blob", "shared/config",
		"shared/core/servers", "shared/fault", "shared/hub/...", "shared/models", "shared/clock", "shared/memory",
		"shared/retry"}},
	{Packages: "gpuworker/online", Imports: gpuworker},
	{Packages: "gpuworker/pipeline/...", Imports: []string{"gpuworker/engine/...", "gpuworker/pipeline/...",
		"gpuworker/tinylm/...", "shared/core/pipeline", "shared/fault"}},
	{Packages: "gpuworker/plugin/...", Imports: []string{"gpuworker/isolation", "gpuworker/plugin/...", "shared/config",
		"shared/core/identity", "shared/fault", "shared/observe/...", "shared/record"}},
	{Packages: "gpuworker/process/...", Imports: gpuworker},
	{Packages: "gpuworker/serve", Imports: gpuworker},
	{Packages: "gpuworker/supervise", Imports: gpuworker},
	{Packages: "gpuworker/tinylm/...", Imports: gpuworker},
	{Packages: "gpuworker/training/...", Imports: gpuworker},
	{Packages: "gpuworker/worker/...", Imports: gpuworker},

	// Examples are for people who don't have the module.
	{Packages: "examples/...", StdOnly: true},

	// Infrastructure takes the names of what it deploys from the packages that define them.
	{Packages: "infra/gcp", Imports: append([]string{"gpuworker/machine"}, infrastructure...)}, // its scripts call it
	{Packages: "infra/...", Imports: infrastructure},

	// Programs, and tests of several parts together.
	{Packages: "localstack/...", Imports: programs},
	{Packages: "scripts/docs", StdOnly: true},                                   // tests of documents
	{Packages: "scripts/rollout/terminal", Imports: []string{"shared/figures"}}, // draws, and knows no runs
	{Packages: "scripts/...", Imports: programs},
}

// Restriction names the packages that only some others may import, besides the
// packages that it matches itself.
type Restriction struct {
	Packages string
	By       []string
	ByTests  bool // tests of every package may import them
	Reason   string
}

const (
	onlyWorkers = "only workers change the document limit/<pool>: a heartbeat tells functions what they need of it"
	takePort    = "take the port as an argument, and let the wiring code choose the driver"
	openDriver  = "only programs open an installation: a function opens its cloud's driver directly"
)

// Restrictions keep drivers and wiring out of everything that is not wiring.
var Restrictions = []Restriction{
	{Packages: "shared/aws/...", By: wiring, Reason: takePort},
	{Packages: "shared/core/ratelimit", By: []string{"gpuworker/...", "localstack/..."}, Reason: onlyWorkers},
	{Packages: "shared/embedded/...", By: wiring, Reason: takePort},
	{Packages: "shared/gcp/...", By: wiring, Reason: takePort},
	{Packages: "shared/installation/...", Reason: openDriver,
		By: []string{"gpuworker/cli/...", "localstack/...", "scripts/..."}},
	{Packages: "shared/memory/...", By: append([]string{"shared/host/hosttest"}, wiring...), ByTests: true,
		Reason: takePort},
}

// wiring are the packages that choose drivers.
var wiring = []string{
	"functions/aws/...", "functions/gcp/...", "gpuworker", "gpuworker/cli/...", "localstack/...", "scripts/...",
	"shared/installation/...",
}

// PurePackages are the packages without I/O, clock and randomness. Impure is
// what they may not import.
var (
	PurePackages = "shared/core/..."
	Impure       = []string{
		"crypto/rand", "database/sql/...", "embed", "io/fs", "io/ioutil", "log/...", "math/rand/...", "net/...", "os/...",
		"path/filepath", "plugin", "runtime/...", "syscall/...",
	}
)

// BannedPackageNames are names that do not say what a package is.
var BannedPackageNames = []string{
	"base", "common", "helper", "helpers", "lib", "misc", "types", "util", "utils",
}

// Linked are the programs that must not contain some packages, because of
// their size and start time.
var Linked = []struct {
	Programs string   // patterns of go list, with spaces between them
	Tags     string   // build tags
	Never    []string // patterns of import paths, for example "modernc.org/sqlite/..."
}{
	{
		Programs: "./functions/aws/...", Tags: "lambda.norpc",
		Never: []string{"database/sql", "modernc.org/...", "rollout/shared/embedded/...", "rollout/shared/installation/...",
			"rollout/shared/gcp/...", "cloud.google.com/...", "google.golang.org/api/..."},
	},
	{ // finalize alone writes Parquet
		Programs: "./functions/aws/api ./functions/aws/coordinate ./functions/aws/interrupt ./functions/aws/plan " +
			"./functions/aws/reclaim ./functions/aws/submit ./gpuworker",
		Tags: "lambda.norpc", Never: []string{"github.com/parquet-go/..."},
	},
	{
		Programs: "./functions/gcp", // one program of all functions
		Never: []string{"database/sql", "modernc.org/...", "rollout/shared/embedded/...", "rollout/shared/installation/...",
			"rollout/shared/aws/...", "github.com/aws/..."},
	},
}
