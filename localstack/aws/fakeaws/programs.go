package fakeaws

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// Programs are the programs of the product, built from a folder with its source.
type Programs struct{ folder string }

// Build builds the functions as they are deployed, and the product's other
// programs, into a folder. What is up to date there is not built again.
func Build(ctx context.Context, source, folder string) (Programs, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return Programs{}, fmt.Errorf("the folder of programs: %w", err)
	}
	p := Programs{folder}
	build := func(output string, arguments ...string) error {
		cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-o", output}, arguments...)...)
		cmd.Dir = source
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %v: %w\n%s", arguments, err, out)
		}
		return nil
	}
	for _, name := range functions {
		if err := build(filepath.Join(p.Functions(), name, "bootstrap"), "-tags", "lambda.norpc", "-trimpath", "-ldflags", "-s -w", "./functions/aws/"+name); err != nil {
			return p, err
		}
	}
	for name, from := range map[string]string{"rollout": "./scripts/rollout", "gpuworker": "./gpuworker", "fakellm": "./scripts/fakellm"} {
		if err := build(p.Path(name), from); err != nil {
			return p, err
		}
	}
	return p, nil
}

// Functions is the folder of the functions, for Options.
func (p Programs) Functions() string { return filepath.Join(p.folder, "functions") }

// Path is that of another program.
func (p Programs) Path(name string) string { return filepath.Join(p.folder, name) }
