package command

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Version, Commit and Date are the release that the program is built as, the commit that it is built from, and the
// commit's time (RFC 3339). They are empty unless a build without version control information sets them, as
// scripts/dist does:
//
//	go build -ldflags "-X rollout/scripts/rollout/command.Commit=HASH -X rollout/scripts/rollout/command.Date=TIME"
//
// They take precedence over what the Go toolchain records in the binary.
var Version, Commit, Date string

// buildInfo describes the program, as `rollout version --json` prints it.
type buildInfo struct {
	Version  string `json:"version"`  // of the module; "devel" if the build is not of a release
	Commit   string `json:"commit"`   // "" if unknown
	Date     string `json:"date"`     // of the commit; "" if unknown
	Modified bool   `json:"modified"` // the working tree had uncommitted changes
	System   string `json:"system"`   // example: "linux/amd64"
	Go       string `json:"go"`       // version of the Go toolchain
}

func versionCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version of rollout and the commit it was built from",
		Args:  arguments(0),
	}
	asJSON := c.Flags().Bool("json", false, "print a JSON object")
	c.RunE = func(*cobra.Command, []string) error {
		b := readBuildInfo()
		if *asJSON {
			return writeJSON(e.Out, b)
		}
		_, err := fmt.Fprintf(e.Out, "rollout %s %s %s\n", b, b.System, b.Go)
		return err
	}
	return c
}

// readBuildInfo combines Version, Commit and Date with what the Go toolchain recorded in the binary.
func readBuildInfo() buildInfo {
	b := buildInfo{Version: "devel", System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		if v := info.Main.Version; v != "" && v != "(devel)" {
			b.Version = v
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.time":
				b.Date = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	b.Version, b.Commit, b.Date = cmp.Or(Version, b.Version), cmp.Or(Commit, b.Commit), cmp.Or(Date, b.Date)
	return b
}

// String formats version, commit and date: "v1.2.0 (commit 259f741aa0c1, 2026-03-01T12:00:00Z)".
func (b buildInfo) String() string {
	if b.Commit == "" {
		return b.Version
	}
	text := b.Version + " (commit " + b.shortCommit()
	if b.Modified {
		text += " with changes"
	}
	if b.Date != "" {
		text += ", " + b.Date
	}
	return text + ")"
}

func (b buildInfo) shortCommit() string { return b.Commit[:min(len(b.Commit), 12)] }

// version returns a short version for files and protocols: the module's version, else the commit, else "devel".
func version() string {
	b := readBuildInfo()
	switch {
	case b.Version != "devel" || b.Commit == "":
		return b.Version
	case b.Modified:
		return b.shortCommit() + "+changes"
	}
	return b.shortCommit()
}
