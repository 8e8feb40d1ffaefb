package planned

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Tools are what a plan needs.
type Tools struct {
	Infra  string // the folder infra/gcp of the repository
	Folder string // where scripts/infra/install_gcp.sh and provider_gcp.sh installed OpenTofu
}

// Plan plans the deployment of a config, with more variables of Terraform, in an empty
// folder.
func (t Tools) Plan(ctx context.Context, dir, config string, options map[string]any) (Deployment, error) {
	infra, err := filepath.Abs(t.Infra)
	if err != nil {
		return Deployment{}, err
	}
	for _, pattern := range []string{"*.tf", "*.sh"} {
		files, err := filepath.Glob(filepath.Join(infra, pattern))
		if err != nil {
			return Deployment{}, err
		}
		for _, file := range files {
			if err := copyFile(file, dir); err != nil {
				return Deployment{}, err
			}
		}
	}
	variables, err := json.Marshal(options)
	if err != nil {
		return Deployment{}, err
	}
	mirror := fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n",
		filepath.Join(t.Folder, "mirror"))
	for name, text := range map[string]string{"rollout.toml": config, "options.auto.tfvars.json": string(variables),
		"cli.config": mirror, "gpuworker": "a program"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return Deployment{}, err
		}
	}
	settings := exec.CommandContext(ctx, "go", "run", ".", "-config", filepath.Join(dir, "rollout.toml"), "-o",
		filepath.Join(dir, "rollout.auto.tfvars.json"))
	settings.Dir = infra
	if out, err := settings.CombinedOutput(); err != nil {
		return Deployment{}, fmt.Errorf("read the settings: %w\n%s", err, out)
	}
	tofu := func(arguments ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, filepath.Join(t.Folder, "tofu"), arguments...)
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + os.TempDir(), "TF_IN_AUTOMATION=1",
			"TF_CLI_CONFIG_FILE=" + filepath.Join(dir, "cli.config"), "CHECKPOINT_DISABLE=1", "SCHEMAS_KNOWN=true",
			"SCHEMAS_DATA=" + filepath.Join(infra, "testdata", "answers.json")}
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("tofu %s: %w\n%s", arguments[0], err, messageOf(err, out))
		}
		return out, nil
	}
	for _, arguments := range [][]string{{"init", "-input=false", "-no-color"},
		{"plan", "-input=false", "-no-color", "-out=plan"}} {
		if _, err := tofu(arguments...); err != nil {
			return Deployment{}, err
		}
	}
	shown, err := tofu("show", "-json", "plan")
	if err != nil {
		return Deployment{}, err
	}
	return Read(shown)
}

// messageOf returns what a command wrote.
func messageOf(err error, out []byte) []byte {
	if exit, ok := err.(*exec.ExitError); ok {
		return append(out, exit.Stderr...)
	}
	return out
}

func copyFile(from, dir string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, filepath.Base(from)), text, 0o600)
}
