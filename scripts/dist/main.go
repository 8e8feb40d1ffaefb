// Command dist builds the release archives: the programs rollout and gpuworker
// for each platform, with a list of their parts (SBOM) and checksums.
//
//	dist [-o FOLDER] [-platforms OS/ARCH,...] [-version V -commit C -date D]
//	dist -notices
//
// The same commit and Go version give the same bytes on every machine and in
// every folder. Version, commit and date are those of the git checkout that it
// runs in; source without git needs the three flags. -notices prints the
// licences of the modules that the programs link, and builds nothing.
//
// It writes into FOLDER and temporary folders only, and uploads nothing.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"rollout/scripts/licenses"
)

func main() {
	if err := run(context.Background(), os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, args []string) error {
	flags := flag.NewFlagSet("dist", flag.ContinueOnError)
	out := flags.String("o", filepath.Join("out", "dist"), "folder of the archives")
	platforms := flags.String("platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64", "comma-separated OS/ARCH")
	version := flags.String("version", "", "version (default: git describe)")
	commit := flags.String("commit", "", "full commit id (default: HEAD)")
	date := flags.String("date", "", "time of the commit, RFC 3339 (default: that of HEAD)")
	notices := flags.Bool("notices", false, "print the licences of linked modules and exit")
	if err := flags.Parse(args); err != nil {
		return err
	}
	modules, err := licenses.Load(ctx, ".")
	if err != nil {
		return err
	}
	if *notices {
		_, err := io.WriteString(w, licenses.Notices(modules))
		return err
	}
	r := Release{Root: ".", Modules: modules, Version: *version, Commit: *commit}
	if *date != "" {
		if r.Date, err = time.Parse(time.RFC3339, *date); err != nil {
			return fmt.Errorf("-date: %w", err)
		}
	}
	if r.Version == "" || r.Commit == "" || r.Date.IsZero() {
		if err := r.fillFromGit(ctx); err != nil {
			return fmt.Errorf("read the version from git: %w: pass -version, -commit and -date", err)
		}
	}
	files, err := r.Build(ctx, *out, strings.Split(*platforms, ","))
	for _, f := range files {
		fmt.Fprintln(w, filepath.Join(*out, f))
	}
	return err
}
