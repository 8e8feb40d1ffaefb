package stack

import (
	"fmt"
	"strings"

	"rollout/shared/config"
	"rollout/shared/fault"
)

// Settings is the input of New.
type Settings struct {
	Deployment config.Deployment
	// Config is the deployment's config as TOML, as ReadConfig returns it.
	// Functions and machines get it in their environment.
	Config string
	// Bucket and Table are Made or Existing. Existing ones are left by an earlier
	// deployment, or the bucket is shared with other uses.
	Bucket, Table string

	API          bool   // add the HTTP API, unless the region lacks function URLs
	Sessions     bool   // let people open a shell on machines with Session Manager
	Machines     bool   // add groups of machines; if false, workers run elsewhere
	Arch         string // of the functions: ArchARM or ArchX86
	FunctionsDir string // folder of the functions' programs, each in NAME/bootstrap
	WorkerBinary string // path of the worker program for x86_64; needed if Machines
	BootScript   string // script that a machine runs when it starts; needed if Machines
	Zones        int    // number of availability zones with machines, 1 to 6; 0 is all
	Network      Network
	Identity     Identity
	Keys         Keys
	Email        string // address for events, alarms and the budget; "" for none
	Budget       int    // US dollars a month; 0 for no budget. Left out if the region lacks budgets
}

// Architectures of functions.
const (
	ArchARM = "arm64" // a fifth cheaper than ArchX86
	ArchX86 = "x86_64"
)

// Origins of the bucket and the table.
const (
	Made     = "made"     // the stack creates it
	Existing = "existing" // it exists already, and the stack only uses it
)

// maxConfig is the largest config in bytes. It must fit into a function's
// environment, which has 4 KiB for all variables, and into a machine's user
// data.
const maxConfig = 3 << 10

// ReadConfig parses a deployment's config. The name is the file's, for messages.
// It returns the deployment and the config without comments, in at most 3 KiB of
// TOML. A malformed config is Invalid; the error lists all problems.
func ReadConfig(name string, src []byte) (config.Deployment, string, error) {
	d, err := config.ParseDeployment(name, src)
	if err != nil {
		return config.Deployment{}, "", err
	}
	if d.Cloud.Provider != config.ProviderAWS {
		return config.Deployment{}, "", &fault.Error{
			Kind:   fault.Invalid,
			Op:     "read " + name,
			Err:    fault.New(fault.Invalid, "it has no [cloud]: it describes an installation on this machine"),
			Remedy: fmt.Sprintf("add [cloud] with provider = %q, and [cloud.s3] with a bucket", config.ProviderAWS),
		}
	}
	short, err := config.Compact(src)
	if err != nil {
		return config.Deployment{}, "", err
	}
	if len(short) > maxConfig {
		return config.Deployment{}, "", &fault.Error{
			Kind: fault.Invalid,
			Op:   "read " + name,
			Err: fault.New(fault.Invalid,
				"it has %d bytes without its comments, and a function's environment has room for %d", len(short), maxConfig),
			Remedy: "leave out settings that have their default, and move settings of single runs to the prompts.toml " +
				"beside their prompts",
		}
	}
	return d, string(short), nil
}

// Check returns an Invalid error that lists all problems of the settings, or
// nil.
func (s Settings) Check() error {
	var problems []string
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if s.Arch != ArchARM && s.Arch != ArchX86 {
		add("arch is %q: use %s or %s", s.Arch, ArchARM, ArchX86)
	}
	for _, part := range []struct{ name, value string }{{"bucket", s.Bucket}, {"table", s.Table}} {
		if part.value != Made && part.value != Existing {
			add("%s is %q: use %s or %s", part.name, part.value, Made, Existing)
		}
	}
	if s.Budget < 0 {
		add("budget is %d: use 1 or more dollars a month, or 0 for no budget", s.Budget)
	}
	if s.Email != "" && !strings.Contains(s.Email, "@") {
		add("email is %q: use an address with an @", s.Email)
	}
	if s.Machines && (s.Zones < 0 || s.Zones > 6) {
		add("zones is %d: use 1 to 6, or 0 for all of the region", s.Zones)
	}
	if s.Machines && len(s.Deployment.Pools) == 0 {
		add("the config has no [[pool]]: add one, with the name of a model, or deploy with -c gpu=false")
	}
	if s.Machines {
		problems = append(problems, s.Network.problems()...)
	}
	problems = append(problems, s.Identity.problems()...)
	problems = append(problems, s.Keys.problems(s.Deployment.Cloud.Region)...)
	problems = append(problems, s.policyProblems()...)
	if len(problems) == 0 {
		return nil
	}
	return fault.New(fault.Invalid, "%s", strings.Join(problems, "; "))
}
