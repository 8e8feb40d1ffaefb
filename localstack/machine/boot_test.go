package machine

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// script is the start script of a machine.
const script = "../../infra/aws/bootstrap.sh"

// fakePrograms are the programs that the script calls, by name, with their commands.
// Each records its arguments.
var fakePrograms = map[string]string{
	"aws": `case "$*" in
*"s3 cp"*) [ -z "${NO_PROGRAM:-}" ] && printf '#!/bin/sh\necho "gpuworker $*" >>"$CALLS"\n' >"${@: -1}" ;;
*get-secret-value*) echo hf_secret ;;
esac`,
	"curl": `case "$*" in
*/health*) [ -z "${NEVER_READY:-}" ] ;;
esac`,
	"nvidia-smi": `printf '%b' "${GPUS:-0, 8.9\n1, 7.5\n}"`,
	"cloud-init": `[ -z "${NO_METADATA:-}" ] && echo i-0123456789abcdef0`,
	"journalctl": `echo "the engine's own words"`,
	"id":         `exit 1`,
	"systemctl":  ``, "systemd-run": ``, "useradd": ``, "sleep": ``,
}

const config = `schema_version = 1
[cloud]
provider = "aws"
region = "us-east-1"
name = "acme"
[cloud.s3]
bucket = "acme-batches"
`

// machine is a machine after its start.
type machine struct {
	t      *testing.T
	root   string
	calls  string // of the fake programs, in order
	output string // of the script
}

// boot runs the start script with the usual variables and the given ones.
func boot(t *testing.T, variables ...string) machine {
	t.Helper()
	root := t.TempDir()
	bin, calls := filepath.Join(root, "bin"), filepath.Join(root, "calls")
	for _, dir := range []string{bin, filepath.Join(root, "dev")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, does := range fakePrograms {
		text := "#!/usr/bin/env bash\necho \"" + name + " $*\" >>\"$CALLS\"\n" + does + "\n"
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "bash", script)
	cmd.Env = append([]string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + root, "CALLS=" + calls,
		"ROLLOUT_ROOT=" + root, "ROLLOUT_READY_WITHIN=1",
		"AWS_REGION=us-east-1", "ROLLOUT_CONFIG=" + config, "ROLLOUT_POOL=small",
		"ROLLOUT_MODEL=org/model", "ROLLOUT_REVISION=main",
		"ROLLOUT_ENGINE_IMAGE=vllm/vllm-openai:v0", "ROLLOUT_WORKER=s3://assets/worker",
	}, variables...)
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	m := machine{t: t, root: root, output: string(output)}
	m.calls = m.file("calls")
	return m
}

// file returns a file of the machine.
func (m machine) file(name string) string {
	m.t.Helper()
	b, err := os.ReadFile(filepath.Join(m.root, name))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(b)
}

// unit returns a unit file of systemd.
func (m machine) unit(name string) string {
	m.t.Helper()
	return m.file("etc/systemd/system/rollout-" + name + ".service")
}

// has checks that the text contains all parts in this order.
func has(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Errorf("%s has no %q after the parts before it:\n%s", what, part, text)
			return
		}
		rest = after
	}
}

// leaves is the call with which a machine leaves its fleet.
const leaves = "aws autoscaling terminate-instance-in-auto-scaling-group --instance-id i-0123456789abcdef0 " +
	"--should-decrement-desired-capacity"

func TestMachineStartsAServerForEachGPU(t *testing.T) {
	t.Parallel()
	m := boot(t)
	has(t, "the first engine", m.unit("engine-0"), "docker run", "--gpus device=0", "--publish 127.0.0.1:8000:8000",
		`"vllm/vllm-openai:v0" "--model" "org/model" "--served-model-name" "org/model" "--revision" "main" `)
	has(
		t,
		"the second engine",
		m.unit("engine-1"),
		"--gpus device=1",
		"--publish 127.0.0.1:8001:8000",
		`"--dtype" "half"`,
	)
	if strings.Contains(m.unit("engine-0"), "half") {
		t.Error("a GPU with bfloat16 is served with half precision")
	}
	has(t, "the worker", m.unit("worker"), "After=network-online.target rollout-engine-0.service "+
		"rollout-engine-1.service", "User=rollout", "AWS_REGION=us-east-1",
		`gpuworker "--cloud" "aws" "--config" "/etc/rollout/rollout.toml" "--pool" "small" "--rented" `, `"--gpus" "0,`+
			`1" "--engine" "http://127.0.0.1:8000/v1,http://127.0.0.1:8001/v1"`,
		"ExecStopPost=+/bin/sh -c 'journalctl", "--unit rollout-worker >/dev/console'", "RestartPreventExitStatus=2 3")
	has(t, "the list of calls", m.calls, "systemd-run --quiet --unit rollout-overdue --on-active=901 "+
		"--setenv=AWS_REGION=us-east-1 --setenv=ROLLOUT_POOL=small "+m.root+"/opt/rollout/leave",
		"aws s3 cp --no-progress s3://assets/worker", "useradd", "systemctl daemon-reload", "systemctl start "+
			"--no-block rollout-engine-0.service",
		"systemctl start --no-block rollout-engine-1.service", "8000/health", "8001/health", "systemctl stop "+
			"rollout-overdue.timer", "systemctl enable --now rollout-worker.service")
	if strings.Contains(m.calls, "terminate") || m.file("etc/rollout/rollout.toml") != config+"\n" {
		t.Errorf("the machine leaves its fleet, or has another config:\n%s", m.calls)
	}
	if info, err := os.Stat(filepath.Join(m.root, "opt/rollout/gpuworker")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the worker program is %v, %v", info, err)
	}
}

func TestMachineThatFailsToStartLeavesItsFleetWithTheReason(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ variable, console, recorded string }{
		"an engine that never answers": {"NEVER_READY=1", "the engine's own words", "the inference server of GPU 0 is " +
			"not ready after 1 s"},
		// without the program nothing is recorded
		"no program": {"NO_PROGRAM=1", "the worker program can't be fetched from s3://assets/worker", ""},
		"no GPU":     {`GPUS=\c`, "the machine has no GPU", "the machine has no GPU"},
		"an invalid config": {"ROLLOUT_CONFIG=[", "the secret hf-token can't be read", "the secret hf-token " +
			"can't be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := boot(t, c.variable)
			has(t, "the list of calls", m.calls, leaves)
			has(t, "the console", m.file("dev/console"), c.console, "this machine leaves its fleet: it could not be set up")
			if c.recorded != "" {
				has(t, "the list of calls", m.calls, "gpuworker --cloud aws --config "+m.root+"/etc/rollout/rollout.toml "+
					"--pool small --give-up it could not be set up: "+c.recorded, leaves)
			}
			if strings.Contains(m.calls, "--now rollout-worker") || strings.Contains(m.calls, "stop rollout-overdue") {
				t.Errorf("the worker was started:\n%s", m.calls)
			}
		})
	}
}

// A spot machine that is off is terminated and costs nothing.
func TestMachineThatCannotLeaveItsFleetPowersOff(t *testing.T) {
	t.Parallel()
	for name, variables := range map[string][]string{
		"its instance id is unknown": {"NO_PROGRAM=1", "NO_METADATA=1"},
		"its disk is not writable":   {"ROLLOUT_ROOT=/dev/null"},
	} {
		m := boot(t, variables...)
		has(t, name, m.calls, "systemctl poweroff")
		if strings.Contains(m.calls, "terminate") || strings.Contains(m.calls, "--now rollout-worker") {
			t.Errorf("%s:\n%s", name, m.calls)
		}
	}
}

func TestOnlyTheServersGetTheSecret(t *testing.T) {
	t.Parallel()
	m := boot(t, "ROLLOUT_CONFIG="+config+"[cloud.secrets]\nallowlist = [\"hf-token\"]\n")
	has(t, "the list of calls", m.calls, "get-secret-value --secret-id acme/hf-token")
	if got := m.file("etc/rollout/engine.env"); got != "HF_TOKEN=hf_secret\n" {
		t.Errorf("the servers' environment is %q", got)
	}
	err := filepath.WalkDir(m.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(path, filepath.Join(m.root, "bin")) {
			return err
		}
		text, err := os.ReadFile(path)
		if info, statErr := d.Info(); statErr == nil && strings.Contains(string(text), "hf_secret") &&
			info.Mode().Perm() != 0o600 {
			t.Errorf("%s contains the secret and has the mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil || strings.Contains(m.output, "hf_secret") {
		t.Errorf("walk: %v; the output contains the secret or the walk failed:\n%s", err, m.output)
	}
	if other := boot(t); strings.Contains(other.calls, "get-secret-value") ||
		other.file("etc/rollout/engine.env") != "\n" {
		t.Errorf("the secret is read although the allowlist does not have it:\n%s", other.calls)
	}
}

func TestMachineOfTheBuiltInModelNeedsNoGPU(t *testing.T) {
	t.Parallel()
	m := boot(t, "ROLLOUT_MODEL=rollout/tiny", `GPUS=\c`)
	has(t, "the list of calls", m.calls, "systemctl enable --now rollout-worker.service")
	if worker := m.unit("worker"); strings.Contains(worker, "--engine") || strings.Contains(m.calls, "nvidia-smi") ||
		strings.Contains(m.calls, "terminate") {
		t.Errorf("%s\n%s", worker, m.calls)
	}
}

// % and $ are special in unit files.
func TestModelNameIsQuotedForSystemd(t *testing.T) {
	t.Parallel()
	m := boot(t, `ROLLOUT_MODEL=a"b\c%h$HOME`)
	has(t, "the engine", m.unit("engine-0"), `"--model" "a\"b\\c%%h$$HOME"`)
}

func TestBashParsesTheScript(t *testing.T) {
	t.Parallel()
	if out, err := exec.CommandContext(t.Context(), "bash", "-n", script).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
