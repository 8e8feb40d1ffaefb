package stack

import (
	"fmt"
	"strings"

	"rollout/shared/config"
	"rollout/shared/fault"
)

// Settings are what a stack is made from.
type Settings struct {
	Deployment config.Deployment
	// Config is the deployment's TOML, as functions and machines get it.
	Config string
	// Bucket and Table are Made, or Existing: of an earlier deployment, whose
	// data outlived it, or a bucket that others use, too.
	Bucket, Table string

	Machines     bool   // whether there are machines; else workers come from elsewhere
	Arch         string // of the functions: ArchARM or ArchX86
	FunctionsDir string // the folder of the functions, each in NAME/bootstrap
	WorkerBinary string // the file of the worker's program, for x86_64; with machines only
	BootScript   string // the script by which a machine starts; with machines only
	Zones        int    // how many availability zones machines are looked for in
	Email        string // who is told of alarms and of the budget; "" is nobody
	Budget       int    // dollars a month after which it is told; 0 is none
}

// Architectures of functions.
const (
	ArchARM = "arm64" // a fifth cheaper
	ArchX86 = "x86_64"
)

// Whose bucket and table they are.
const (
	Made     = "made"     // the stack's
	Existing = "existing" // somebody else's
)

// maxConfig is what the config may take of a function's environment, which
// has 4 KiB for all variables, and of a machine's user data.
const maxConfig = 3 << 10

// ReadConfig reads a deployment's config; name is the file's, for messages. What is
// wrong with it is Invalid, all at once.
func ReadConfig(name string, src []byte) (config.Deployment, string, error) {
	d, err := config.ParseDeployment(name, src)
	if err != nil {
		return config.Deployment{}, "", err
	}
	if d.Cloud.Provider != config.ProviderAWS {
		return config.Deployment{}, "", &fault.Error{Kind: fault.Invalid, Op: "read " + name, Err: fault.New(fault.Invalid, "it has no [cloud]: it is of a laptop"),
			Remedy: fmt.Sprintf("add [cloud] with provider = %q, and [cloud.s3] with a bucket", config.ProviderAWS)}
	}
	short, err := config.Compact(src)
	if err != nil {
		return config.Deployment{}, "", err
	}
	if len(short) > maxConfig {
		return config.Deployment{}, "", &fault.Error{Kind: fault.Invalid, Op: "read " + name,
			Err:    fault.New(fault.Invalid, "it has %d bytes without its comments, and a function's environment has room for %d", len(short), maxConfig),
			Remedy: "leave out what has its default, and put what only some runs need into the files beside their prompts"}
	}
	return d, string(short), nil
}

// Check tells everything that is wrong with the settings, as Invalid.
func (s Settings) Check() error {
	var problems []string
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if s.Arch != ArchARM && s.Arch != ArchX86 {
		add("arch is %q: it is %s or %s", s.Arch, ArchARM, ArchX86)
	}
	for _, part := range []struct{ name, whose string }{{"bucket", s.Bucket}, {"table", s.Table}} {
		if part.whose != Made && part.whose != Existing {
			add("%s is %q: it is %s or %s", part.name, part.whose, Made, Existing)
		}
	}
	if s.Budget < 0 {
		add("budget is %d: it is 1 dollar a month or more, or 0 for none", s.Budget)
	}
	if s.Email != "" && !strings.Contains(s.Email, "@") {
		add("email is %q, which is no address", s.Email)
	}
	if s.Machines && (s.Zones < 1 || s.Zones > 6) {
		add("zones is %d: it is 1 to 6", s.Zones)
	}
	if s.Machines && len(s.Deployment.InferPools()) == 0 {
		add("the config has no [[pool]] that answers prompts: add one, with the name of a model, or deploy with -c gpu=false")
	}
	if len(problems) == 0 {
		return nil
	}
	return fault.New(fault.Invalid, "%s", strings.Join(problems, "; "))
}
