package fakeaws

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// Programs are the built programs of the product.
type Programs struct{ folder string }

// Build builds the functions as they are deployed, and the other programs of the
// product, from a folder with the source. The folder keeps them for later builds.
func Build(ctx context.Context, source, folder string) (Programs, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return Programs{}, fmt.Errorf("find the folder of programs: %w", err)
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
		if err := build(filepath.Join(p.Functions(), name, "bootstrap"), "-tags", "lambda.norpc", "-trimpath", "-ldflags",
			"-s -w", "./functions/aws/"+name); err != nil {
			return p, err
		}
	}
	for name, from := range map[string]string{"rollout": "./scripts/rollout", "gpuworker": "./gpuworker"} {
		if err := build(p.Path(name), from); err != nil {
			return p, err
		}
	}
	return p, nil
}

// Functions is the folder of the functions, for Options.Programs.
func (p Programs) Functions() string { return filepath.Join(p.folder, "functions") }

// Path is the path of another program.
func (p Programs) Path(name string) string { return filepath.Join(p.folder, name) }
