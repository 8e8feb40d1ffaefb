package machine

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// script is what the machine runs.
const script = "../../infra/aws/bootstrap.sh"

// standIns are the programs that the script calls: each notes its arguments,
// and some answer.
var standIns = map[string]string{
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

// machine is a machine that has started.
type machine struct {
	t     *testing.T
	root  string
	calls string // of the stand-ins, in order
	said  string
}

// boot starts a machine whose environment has these variables beside the usual
// ones.
func boot(t *testing.T, variables ...string) machine {
	t.Helper()
	root := t.TempDir()
	bin, calls := filepath.Join(root, "bin"), filepath.Join(root, "calls")
	for _, dir := range []string{bin, filepath.Join(root, "dev")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, does := range standIns {
		text := "#!/usr/bin/env bash\necho \"" + name + " $*\" >>\"$CALLS\"\n" + does + "\n"
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "bash", script)
	cmd.Env = append(
		[]string{
			"PATH=" + bin + ":" + os.Getenv("PATH"),
			"HOME=" + root,
			"CALLS=" + calls,
			"ROLLOUT_ROOT=" + root,
			"ROLLOUT_READY_WITHIN=1",
			"AWS_REGION=us-east-1",
			"ROLLOUT_CONFIG=" + config,
			"ROLLOUT_POOL=small",
			"ROLLOUT_MODEL=org/model",
			"ROLLOUT_REVISION=main",
			"ROLLOUT_ENGINE_IMAGE=vllm/vllm-openai:v0",
			"ROLLOUT_WORKER=s3://assets/worker",
		},
		variables...)
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	m := machine{t: t, root: root, said: string(said)}
	m.calls = m.file("calls")
	return m
}

func (m machine) file(name string) string {
	m.t.Helper()
	b, err := os.ReadFile(filepath.Join(m.root, name))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(b)
}

// unit is the text of a unit of systemd's.
func (m machine) unit(name string) string {
	m.t.Helper()
	return m.file("etc/systemd/system/rollout-" + name + ".service")
}

// has requires all of the parts in the text, in this order.
func has(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Errorf("%s has no %q (after what comes before):\n%s", what, part, text)
			return
		}
		rest = after
	}
}

const leaves = "aws autoscaling terminate-instance-in-auto-scaling-group --instance-id i-0123456789abcdef0 " +
	"--should-decrement-desired-capacity"

func TestAMachineServesWithAllOfItsGPUs(t *testing.T) {
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
		t.Error("a GPU that has bfloat16 is not let use it")
	}
	has(
		t,
		"the worker",
		m.unit("worker"),
		"After=network-online.target rollout-engine-0.service rollout-engine-1.service",
		"User=rollout",
		"AWS_REGION=us-east-1",
		`gpuworker "--cloud" "aws" "--config" "/etc/rollout/rollout.toml" "--pool" "small" "--rented" `,
		`"--gpus" "0,1" "--engine" "http://127.0.0.1:8000/v1,http://127.0.0.1:8001/v1"`,
		"ExecStopPost=+/bin/sh -c 'journalctl",
		"--unit rollout-worker >/dev/console'",
		"RestartPreventExitStatus=2 3",
	)
	has(
		t,
		"what it did",
		m.calls,
		"systemd-run --quiet --unit rollout-overdue --on-active=901 --setenv=AWS_REGION=us-east-1 "+
			"--setenv=ROLLOUT_POOL=small "+m.root+"/opt/rollout/leave",
		"aws s3 cp --no-progress s3://assets/worker",
		"useradd",
		"systemctl daemon-reload",
		"systemctl start --no-block rollout-engine-0.service",
		"systemctl start --no-block rollout-engine-1.service",
		"8000/health",
		"8001/health",
		"systemctl stop rollout-overdue.timer",
		"systemctl enable --now rollout-worker.service",
	)
	if strings.Contains(m.calls, "terminate") || m.file("etc/rollout/rollout.toml") != config+"\n" {
		t.Errorf("it leaves, or has another config:\n%s", m.calls)
	}
	if info, err := os.Stat(filepath.Join(m.root, "opt/rollout/gpuworker")); err != nil ||
		info.Mode().Perm() != 0o755 {
		t.Errorf("the program: %v, %v", info, err)
	}
}

func TestAMachineThatCanNotServeLeavesItsFleetAndSaysWhy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ variable, why, tells string }{
		"an engine that never answers": {"NEVER_READY=1", "the engine's own words",
			"the inference server of GPU 0 is not ready after 1 s"},
		// Without the program, nothing can report the failure.
		"no program": {"NO_PROGRAM=1", "the worker program can't be fetched from s3://assets/worker", ""},
		"no GPU":     {`GPUS=\c`, "the machine has no GPU", "the machine has no GPU"},
		"an invalid config": {"ROLLOUT_CONFIG=[", "the secret hf-token can't be read",
			"the secret hf-token can't be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := boot(t, c.variable)
			has(t, "what it did", m.calls, leaves)
			has(
				t,
				"its console",
				m.file("dev/console"),
				c.why,
				"this machine leaves its fleet: it could not be set up",
			)
			if c.tells != "" {
				has(
					t,
					"what it did",
					m.calls,
					"gpuworker --cloud aws --config "+m.root+"/etc/rollout/rollout.toml --pool small "+
						"--give-up it could not be set up: "+c.tells,
					leaves,
				)
			}
			if strings.Contains(m.calls, "--now rollout-worker") ||
				strings.Contains(m.calls, "stop rollout-overdue") {
				t.Errorf("its worker was started:\n%s", m.calls)
			}
		})
	}
}

// What it costs ends, whatever is wrong: a spot machine that is off is gone.
func TestAMachineThatCanNotEvenLeaveSwitchesItselfOff(t *testing.T) {
	t.Parallel()
	for name, variables := range map[string][]string{
		"it does not know what it is called": {"NO_PROGRAM=1", "NO_METADATA=1"},
		"it has no disk to write to":         {"ROLLOUT_ROOT=/dev/null"},
	} {
		m := boot(t, variables...)
		has(t, name, m.calls, "systemctl poweroff")
		if strings.Contains(m.calls, "terminate") || strings.Contains(m.calls, "--now rollout-worker") {
			t.Errorf("%s:\n%s", name, m.calls)
		}
	}
}

func TestAMachineTellsItsSecretToTheEnginesAlone(t *testing.T) {
	t.Parallel()
	m := boot(t, "ROLLOUT_CONFIG="+config+"[cloud.secrets]\nallowlist = [\"hf-token\"]\n")
	has(t, "what it asked for", m.calls, "get-secret-value --secret-id acme/hf-token")
	if got := m.file("etc/rollout/engine.env"); got != "HF_TOKEN=hf_secret\n" {
		t.Errorf("the engines' environment is %q", got)
	}
	err := filepath.WalkDir(m.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(path, filepath.Join(m.root, "bin")) {
			return err
		}
		text, err := os.ReadFile(path)
		if info, statErr := d.Info(); statErr == nil && strings.Contains(string(text), "hf_secret") &&
			info.Mode().Perm() != 0o600 {
			t.Errorf("%s has it, and may be read by others: %v", path, info.Mode())
		}
		return err
	})
	if err != nil || strings.Contains(m.said, "hf_secret") {
		t.Errorf("%v; said:\n%s", err, m.said)
	}
	if other := boot(t); strings.Contains(other.calls, "get-secret-value") ||
		other.file("etc/rollout/engine.env") != "\n" {
		t.Errorf("without it on the allowlist:\n%s", other.calls)
	}
}

func TestAMachineOfTheBuiltInModelNeedsNoGPU(t *testing.T) {
	t.Parallel()
	m := boot(t, "ROLLOUT_MODEL=rollout/tiny", `GPUS=\c`)
	has(t, "what it did", m.calls, "systemctl enable --now rollout-worker.service")
	if worker := m.unit("worker"); strings.Contains(worker, "--engine") || strings.Contains(m.calls, "nvidia-smi") ||
		strings.Contains(m.calls, "terminate") {
		t.Errorf("%s\n%s", worker, m.calls)
	}
}

// systemd reads % and $ as its own.
func TestAModelsNameIsNoTextOfSystemds(t *testing.T) {
	t.Parallel()
	m := boot(t, `ROLLOUT_MODEL=a"b\c%h$HOME`)
	has(t, "the engine", m.unit("engine-0"), `"--model" "a\"b\\c%%h$$HOME"`)
}

func TestBashReadsTheScript(t *testing.T) {
	t.Parallel()
	if out, err := exec.CommandContext(t.Context(), "bash", "-n", script).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
