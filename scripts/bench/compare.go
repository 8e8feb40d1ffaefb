package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"rollout/localstack/subprocess"
)

// benchstat is the tool that compares. It is run with go run and not linked.
const benchstat = "golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da"

func compareCommand() *cobra.Command {
	return &cobra.Command{
		Use: "compare OLD NEW", Short: "Compare two files of figures with benchstat", Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			dir, err := os.MkdirTemp("", "bench")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			run := []string{"run", benchstat}
			for _, path := range args {
				r, err := loadReport(path)
				if err != nil {
					return err
				}
				text := filepath.Join(dir, filepath.Base(path)+".txt")
				if err := writeText(text, r); err != nil {
					return err
				}
				run = append(run, r.Commit+"="+text)
			}
			cmd := exec.CommandContext(c.Context(), "go", run...)
			cmd.Stdout, cmd.Stderr = c.OutOrStdout(), c.ErrOrStderr()
			return subprocess.Run(cmd)
		},
	}
}

// writeText writes a report for benchstat.
func writeText(path string, r *Report) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	err = r.text(f)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// text writes the figures in the format of Go benchmarks, one line for each round
// (golang.org/design/14313-benchmark-format).
func (r *Report) text(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "cpu: %s\nUnit samples/s better=higher\nUnit jobs/s better=higher\n", r.CPU); err != nil {
		return err
	}
	for _, f := range r.Figures {
		for _, v := range f.Values {
			if _, err := fmt.Fprintf(w, "Benchmark%s 1 %g %s\n", f.Name, v, f.Unit); err != nil {
				return err
			}
		}
	}
	return nil
}
