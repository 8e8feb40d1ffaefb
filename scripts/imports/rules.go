package imports

// Module is the module's path.
const Module = "rollout"

// TopLevel are the folders that the repository has, besides files.
var TopLevel = []string{"events", "shared", "functions", "gpuworker", "infra", "localstack", "scripts", "examples", ".ci"}

// Rule says what the packages that match may import of the module. A pattern
// is a folder, a folder and all below it ("shared/core/..."), or has * for
// one part of a path. A package may always import itself (from its tests).
type Rule struct {
	Packages string
	Imports  []string
	StdOnly  bool // no other modules either
}

// Rules is the whole map. The first rule that matches a package holds.
var Rules = []Rule{
	{Packages: "events", StdOnly: true},
	{Packages: "events/internal/schemagen", Imports: []string{"events"}}, // a tool of developers

	// The pure core; see Pure.
	{Packages: "shared/core/...", Imports: []string{"shared/core/...", "shared/fault", "shared/text"}},

	{Packages: "shared/fault", StdOnly: true},
	{Packages: "shared/clock", StdOnly: true},
	{Packages: "shared/text", StdOnly: true},
	{Packages: "shared/config", Imports: []string{"shared/fault", "shared/text"}},
	{Packages: "shared/observe/...", Imports: []string{"shared/...", "events"}}, // the names of observability events
	{Packages: "shared/retry", Imports: shared},
	{Packages: "shared/listen", Imports: shared},
	{Packages: "shared/jsonl", Imports: shared},
	{Packages: "shared/dialect", Imports: shared},
	{Packages: "shared/shardtable", Imports: shared},
	{Packages: "shared/record", Imports: shared},
	{Packages: "shared/input/...", Imports: shared},
	{Packages: "shared/result", Imports: shared},

	// Ports and their suites.
	{Packages: "shared/blob/...", Imports: shared},
	{Packages: "shared/document/...", Imports: shared},
	{Packages: "shared/queue/...", Imports: shared},
	{Packages: "shared/secret/...", Imports: shared},
	{Packages: "shared/capacity/...", Imports: shared},

	// Drivers.
	{Packages: "shared/memory/...", Imports: shared},
	{Packages: "shared/embedded/local", Imports: shared}, // wiring: what opens a laptop's folder
	{Packages: "shared/embedded/...", Imports: shared},
	{Packages: "shared/aws/stack", Imports: []string{"shared/...", "events"}}, // wiring: what opens a deployed stack, and routes its events
	{Packages: "shared/aws/...", Imports: shared},
	{Packages: "shared/gcp/...", Imports: shared},

	// The shell of the pure core sends events.
	{Packages: "shared/host/...", Imports: []string{"shared/...", "events"}},
	{Packages: "shared/snapshot/...", Imports: []string{"shared/..."}},

	// Thin mains of a cloud, a folder a cloud.
	{Packages: "functions/aws/...", Imports: functions},
	{Packages: "functions/gcp/...", Imports: functions},

	{Packages: "functions/submit/...", Imports: functions},
	{Packages: "functions/plan/...", Imports: functions},
	{Packages: "functions/coordinate/...", Imports: functions},
	{Packages: "functions/reflect/...", Imports: functions},
	{Packages: "functions/finalize/...", Imports: functions},
	{Packages: "functions/reclaim/...", Imports: functions},
	{Packages: "functions/interrupt/...", Imports: functions},
	{Packages: "functions/api/...", Imports: functions},
	{Packages: "functions/internal/...", Imports: functions},
	{Packages: "functions/inprocess/...", Imports: functions},

	{Packages: "gpuworker", Imports: gpuworker},
	{Packages: "gpuworker/worker/...", Imports: gpuworker},
	{Packages: "gpuworker/engine/...", Imports: gpuworker},
	{Packages: "gpuworker/drain/...", Imports: gpuworker},
	{Packages: "gpuworker/executors/...", Imports: gpuworker},
	{Packages: "gpuworker/tinylm/...", Imports: gpuworker},
	{Packages: "gpuworker/training/...", Imports: gpuworker},
	{Packages: "gpuworker/process/...", Imports: gpuworker},
	{Packages: "gpuworker/supervise", Imports: gpuworker},
	{Packages: "gpuworker/cli/...", Imports: gpuworker}, // wiring

	{Packages: "scripts/docs", StdOnly: true}, // tests of documents
	{Packages: "scripts/...", Imports: anything},
	{Packages: "localstack/...", Imports: anything},
	// The names of what is deployed have one home each.
	{Packages: "infra/...", Imports: []string{"infra/...", "shared/config", "shared/fault", "shared/host", "shared/queue", "shared/record"}},
}

var (
	shared    = []string{"shared/..."}
	functions = []string{"functions/...", "shared/...", "events"}
	gpuworker = []string{"gpuworker/...", "shared/...", "events"}
	anything  = []string{"scripts/...", "localstack/...", "functions/...", "gpuworker/...", "shared/...", "events"}
)

// Drivers are the packages that only Wiring names. Tests anywhere may use the
// driver in memory.
var (
	Drivers    = []string{"shared/embedded/...", "shared/memory/...", "shared/aws/...", "shared/gcp/..."}
	TestDriver = "shared/memory/..."
	Wiring     = []string{"functions/inprocess/...", "functions/aws/...", "functions/gcp/...", "functions/internal/...",
		"gpuworker", "gpuworker/cli/...", "scripts/...", "localstack/..."}
)

// PurePackages is the code without I/O, clock and dice, and what it may not import.
var (
	PurePackages = "shared/core/..."
	Impure       = []string{"os/...", "net/...", "syscall/...", "io/fs", "io/ioutil", "log/...", "math/rand/...",
		"crypto/rand", "database/sql/...", "path/filepath", "plugin", "embed", "runtime/..."}
)

// BannedPackageNames are names of junk drawers.
var BannedPackageNames = []string{"util", "utils", "common", "types", "helper", "helpers", "misc", "base", "lib"}
