// Command gcp prepares the deployment of rollout to Google Cloud: it reads
// rollout.toml and writes what Terraform needs of it, as the variable settings, to
// rollout.auto.tfvars.json, which Terraform reads by itself. It calls no service
// of Google's, and asks the hub of models what the pools' models need of a GPU.
//
//	rollout.toml ──▶ go run . ──▶ rollout.auto.tfvars.json ──▶ terraform apply
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	"rollout/shared/fault"
	"rollout/shared/poolcheck"
)

// defaultConfigs are the files that the config is read from without -config: in this
// folder, then at the repository's root. The first that exists is used.
var defaultConfigs = []string{"rollout.toml", "../../rollout.toml"}

func main() {
	if err := run(os.Args[1:], os.Stderr, poolcheck.FromEnvironment(os.Getenv)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run writes the settings that the arguments ask for, and says which pools will not start
// to serve their models, and what can't be known of them.
func run(args []string, errOut io.Writer, models poolcheck.Models) error {
	flags := flag.NewFlagSet("gcp", flag.ContinueOnError)
	flags.SetOutput(errOut)
	path := flags.String("config", "", "the config; default: rollout.toml here or at the repository's root")
	out := flags.String("o", "rollout.auto.tfvars.json", "the file to write")
	if err := flags.Parse(args); err != nil {
		return fault.WithKind(fault.Invalid, err, "read the command line")
	}
	if *path == "" {
		*path = firstOf(defaultConfigs)
	}
	src, err := os.ReadFile(*path)
	if err != nil {
		return &fault.Error{Kind: fault.NotFound, Op: "read the config", Err: err,
			Remedy: "copy examples/gcp.toml to it, or name another file with -config FILE"}
	}
	s, d, err := readSettings(*path, src)
	if err != nil {
		return err
	}
	poolcheck.Write(errOut, models.CheckAll(context.Background(), d))
	text, err := json.MarshalIndent(map[string]settings{"settings": s}, "", "  ")
	if err != nil {
		return fault.WithKind(fault.Invalid, err, "encode the settings")
	}
	return fault.WithKind(fault.Unavailable, os.WriteFile(*out, append(text, '\n'), 0o644), "write the settings")
}

// firstOf returns the first path that exists, or else the first.
func firstOf(paths []string) string {
	for _, path := range paths {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return paths[0]
}
