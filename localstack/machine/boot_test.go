package machine

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rollout/gpuworker/cli"
	settings "rollout/shared/config"
)

// script is the start script of a machine.
const script = "../../infra/aws/bootstrap.sh"

// fakePrograms are the programs that the script calls, by name, with their commands.
// Each records its arguments.
var fakePrograms = map[string]string{
	"aws": `case "$*" in
*"s3 cp"*worker*) [ -z "${NO_PROGRAM:-}" ] && printf '%s\n' '#!/bin/sh' 'echo "gpuworker $*" >>"$CALLS"' \
  'case "$2" in *-model) exit "${NO_MODEL:-0}" ;; esac' \
  '[ "$1" != machine ] || AS_WORKER=1 exec "$TEST_PROGRAM" "$@"' >"${@: -1}" ;;
*get-secret-value*) echo hf_secret ;;
*get-login-password*) echo ecr_password ;;
esac`,
	"curl": `case "$*" in
*/health*) read -r up _ <"$ROLLOUT_ROOT/proc/uptime"
  [ -z "${NEVER_READY:-}" ] && [ "${up%%.*}" -ge "${READY_AT:-0}" ] ;;
*/v1/models*) echo '{"data":[{"id":"org/model","max_model_len":32768}]}' ;;
esac`,
	"nvidia-smi": `printf '%b' "${GPUS:-0, 8.9\n1, 7.5\n}"`,
	"cloud-init": `[ -z "${NO_METADATA:-}" ] && echo i-0123456789abcdef0`,
	"journalctl": `printf 'INFO loading\nValueError: the engine has a reason\nRuntimeError: See root cause above\n'`,
	"id":         `exit 1`,
	"systemctl": `case "$*" in
*NRestarts*) echo "${RESTARTS:-0}" ;;
esac`,
	"docker": `case "$*" in
"image inspect"*) [ -n "${HAS_IMAGE:-}" ] ;;
pull*) [ -z "${NO_REGISTRY:-}" ] || { echo 'toomanyrequests: come later' >&2; exit 1; }
  [ ! -f "$DOCKER_CONFIG/config.json" ] || {
    helper=docker-credential-$(sed 's/.*:"\(.*\)"}}/\1/' "$DOCKER_CONFIG/config.json")
    echo registry | "$helper" get >>"$CALLS"
  } ;;
esac`,
	// Nothing waits: time passes by what the script sleeps.
	"sleep": `at=$ROLLOUT_ROOT/proc/uptime
read -r up _ <"$at" && echo "$((${up%%.*} + $1)).00 0.00" >"$at" || true`,
	"systemd-run": ``, "useradd": ``,
}

const config = `schema_version = 1
[cloud]
provider = "aws"
region = "us-east-1"
name = "acme"
[cloud.s3]
bucket = "acme-batches"
`

// aPool is a pool of that config.
const aPool = `[[pool]]
name = "small"
model = "org/model"
revision = "main"
`

// TestMain lets the test program stand for the worker program, whose command "machine" the
// script calls.
func TestMain(m *testing.M) {
	if os.Getenv("AS_WORKER") == "" {
		os.Exit(m.Run())
	}
	code, err := cli.Main(context.Background(), cli.Program{Name: "gpuworker", Stderr: os.Stderr}, os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "gpuworker: %v\n", err)
	}
	os.Exit(code)
}

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
	for _, dir := range []string{bin, filepath.Join(root, "dev"), filepath.Join(root, "proc")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "proc/uptime"), []byte("31.70 120.05\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, does := range fakePrograms {
		text := "#!/usr/bin/env bash\necho \"" + name + " $*\" >>\"$CALLS\"\n" + does + "\n"
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", script)
	cmd.Env = append([]string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + root, "CALLS=" + calls, "TEST_PROGRAM=" + program,
		"ROLLOUT_ROOT=" + root, "ROLLOUT_READY_WITHIN=1",
		"AWS_REGION=us-east-1", "ROLLOUT_CONFIG=" + config + aPool, "ROLLOUT_POOL=small",
		"ROLLOUT_MODEL=org/model", "ROLLOUT_WORKER=s3://assets/worker",
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
	has(t, "the first engine", m.unit("engine-0"), `"--gpus" "device=0"`, `"127.0.0.1:8000:8000"`,
		`"--model" "org/model" "--served-model-name" "org/model"`, `"--revision" "main"`)
	has(t, "the second engine", m.unit("engine-1"), `"--gpus" "device=1"`, `"127.0.0.1:8001:8000"`, `"--dtype" "half"`)
	has(t, "the worker", m.unit("worker"), "After=network-online.target rollout-engine-0.service "+
		"rollout-engine-1.service", "User=rollout", "AWS_REGION=us-east-1",
		`gpuworker "--cloud" "aws" "--config" "/etc/rollout/rollout.toml" "--pool" "small" "--rented" `, `"--gpus" "0,`+
			`1" "--gpus-per-server" "1" "--engine" "http://127.0.0.1:8000/v1,http://127.0.0.1:8001/v1"`,
		"ExecStopPost=+/bin/sh -c 'journalctl", "--unit rollout-worker >/dev/console'", "RestartPreventExitStatus=2 3")
	has(t, "the list of calls", m.calls, "systemd-run --quiet --unit rollout-overdue --on-active=901 "+
		"--setenv=AWS_REGION=us-east-1 --setenv=ROLLOUT_POOL=small --setenv=ROLLOUT_LOGS= "+m.root+"/opt/rollout/leave",
		"aws s3 cp --no-progress s3://assets/worker", "useradd", "gpuworker machine units", "systemctl daemon-reload",
		"systemctl stop docker.socket docker.service containerd.service", "systemctl start rollout-disks.service",
		"systemctl start containerd.service docker.service", "docker pull --quiet vllm/vllm-openai:v0.21.0-cu129",
		"systemctl start --no-block rollout-engine-0.service rollout-engine-1.service", "8000/health", "8001/health",
		"systemctl stop rollout-overdue.timer", "systemctl start rollout-worker.service",
		"systemd-run --quiet --unit rollout-store-model --property=Nice=15 "+m.root+"/opt/rollout/gpuworker machine "+
			"store-model --config "+m.root+"/etc/rollout/rollout.toml --pool small")
	has(t, "what precedes the servers", m.calls, "docker pull", "gpuworker machine fetch-model --config "+
		m.root+"/etc/rollout/rollout.toml --pool small", "systemctl start --no-block rollout-engine-0.service")
	has(t, "the console", m.file("dev/console"), "the inference server of GPU 1 has a context of 32768 tokens")
	if strings.Contains(m.calls, "terminate") || strings.Contains(m.calls, "aws s3 sync") ||
		m.file("etc/rollout/rollout.toml") != config+aPool+"\n" {
		t.Errorf("the machine leaves its fleet, fetches a model, or has another config:\n%s", m.calls)
	}
	if info, err := os.Stat(filepath.Join(m.root, "opt/rollout/gpuworker")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the worker program is %v, %v", info, err)
	}
}

// `rollout status` shows how far a boot is. No boot fails because that can't be recorded.
func TestMachineSaysHowFarItsBootIs(t *testing.T) {
	t.Parallel()
	m := boot(t)
	stage := func(name string) string {
		return "gpuworker --cloud aws --config " + m.root + "/etc/rollout/rollout.toml --pool small --boot-stage " + name
	}
	has(t, "the list of calls", m.calls, stage("image"), "docker image inspect", stage("model"),
		"systemctl start --no-block", "8000/health", stage("ready"), "systemctl start rollout-worker.service")
}

// The console of a spot machine is gone with it. A log group keeps why it left.
func TestMachineThatLeavesKeepsItsLogs(t *testing.T) {
	t.Parallel()
	m := boot(t, "NEVER_READY=1", "ROLLOUT_LOGS=/rollout/acme/machines")
	const to = "--log-group-name /rollout/acme/machines --log-stream-name i-0123456789abcdef0"
	has(t, "the list of calls", m.calls, "--give-up it could not be set up", "journalctl --no-pager --lines 400",
		"aws logs create-log-stream "+to, "aws logs put-log-events "+to+" --log-events file://"+m.root, leaves)
	has(t, "the events", m.file("opt/rollout/events.json"), `{"timestamp":`, "ValueError: the engine has a reason",
		"this machine leaves its fleet: it could not be set up: the inference server of GPU 0 is not ready")
	if without := boot(t, "NEVER_READY=1"); strings.Contains(without.calls, "aws logs") {
		t.Errorf("logs are kept without a log group:\n%s", without.calls)
	}
}

// Engines and worker come back after a reboot, at which the script does not run. To enable
// a unit, or to reload systemd, takes the GPUs away from running containers with some
// drivers.
func TestUnitsAreEnabledBeforeContainersStart(t *testing.T) {
	t.Parallel()
	m := boot(t)
	before, after, _ := strings.Cut(m.calls, "systemctl start --no-block rollout-engine-0.service")
	has(t, "what is called before", before, "systemctl daemon-reload", "systemctl enable rollout-worker.service "+
		"rollout-disks.service rollout-engine-0.service rollout-engine-1.service", "systemctl start rollout-disks")
	if strings.Contains(after, "enable") || strings.Contains(after, "daemon-reload") {
		t.Errorf("systemd is reloaded while containers run:\n%s", m.calls)
	}
	for _, unit := range []string{"engine-0", "engine-1", "worker", "disks"} {
		has(t, unit, m.unit(unit), "[Install]\nWantedBy=multi-user.target")
	}
	has(t, "the disks", m.unit("disks"), "Before=containerd.service docker.service",
		"ExecStart=/opt/rollout/gpuworker machine disks")
}

func TestOneServerUsesTwoGPUs(t *testing.T) {
	t.Parallel()
	m := boot(t, "ROLLOUT_CONFIG="+config+aPool+"tensor_parallel = 2\n", `GPUS=0, 9.0\n1, 9.0\n2, 9.0\n3, 9.0\n`)
	has(t, "the second engine", m.unit("engine-2"), `"--gpus" "\"device=2,3\""`, `"127.0.0.1:8002:8000"`,
		`"--tensor-parallel-size" "2"`)
	has(t, "the worker", m.unit("worker"), `"--gpus" "0,1,2,3" "--gpus-per-server" "2" "--engine" `+
		`"http://127.0.0.1:8000/v1,http://127.0.0.1:8002/v1"`)
	if _, err := os.Stat(filepath.Join(m.root, "etc/systemd/system/rollout-engine-1.service")); !os.IsNotExist(err) {
		t.Errorf("the second GPU has a server of its own: %v", err)
	}
}

func TestMachineFetchesAModelFromABucket(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"s3://acme-models/llama/":    "aws s3 sync --no-progress s3://acme-models/llama/ ",
		"s3://acme-models/x/q4.gguf": "aws s3 cp --no-progress s3://acme-models/x/q4.gguf ",
	} {
		pool := strings.Replace(aPool, "org/model", address, 1)
		if strings.HasSuffix(address, ".gguf") {
			pool = strings.Replace(pool, `revision = "main"`, `server = "llama.cpp"`, 1)
		}
		m := boot(t, "ROLLOUT_CONFIG="+config+pool, "ROLLOUT_MODEL="+address)
		has(t, "the list of calls", m.calls, "systemctl start rollout-disks.service", want+m.root+"/var/lib/rollout/model",
			"systemctl start --no-block rollout-engine-0.service")
		has(t, "the engine", m.unit("engine-0"), `"--volume" "/var/lib/rollout/model:/model:ro"`)
	}
}

// A model of the hub has another source, and one that only the bucket has does not.
func TestMachineGoesOnWithoutTheBucketsCopyOfAModel(t *testing.T) {
	t.Parallel()
	m := boot(t, "NO_MODEL=1")
	has(t, "the list of calls", m.calls, "gpuworker machine fetch-model",
		"systemctl start --no-block rollout-engine-0.service",
		"systemctl start rollout-worker.service")
	if strings.Contains(m.calls, "terminate") {
		t.Errorf("the machine leaves its fleet:\n%s", m.calls)
	}
	const address = "s3://acme-batches/models/own/mine/0123.json"
	own := strings.Replace(aPool, "org/model", address, 1)
	m = boot(t, "ROLLOUT_CONFIG="+config+own, "ROLLOUT_MODEL="+address)
	has(t, "the list of calls", m.calls, "gpuworker machine fetch-model",
		"systemctl start --no-block rollout-engine-0.service")
	has(t, "the engine", m.unit("engine-0"), `"--volume" "/var/lib/rollout/model:/model:ro"`)
	m = boot(t, "ROLLOUT_CONFIG="+config+own, "ROLLOUT_MODEL="+address, "NO_MODEL=1")
	has(t, "the list of calls", m.calls, "gpuworker machine fetch-model", leaves)
	has(t, "the console", m.file("dev/console"), "the model can't be fetched from "+address)
}

func TestMachineThatFailsToStartLeavesItsFleetWithTheReason(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ variable, console, recorded string }{
		"an engine that never answers": {"NEVER_READY=1", "See root cause above", "the inference server of GPU 0 is " +
			"not ready after 1 s, and started after "},
		// without the program nothing is recorded
		"no program": {"NO_PROGRAM=1", "the worker program can't be fetched from s3://assets/worker", ""},
		"no registry": {"NO_REGISTRY=1", "toomanyrequests", "the image vllm/vllm-openai:v0.21.0-cu129 can't be fetched: " +
			"toomanyrequests: come later"},
		"no GPU": {`GPUS=\c`, "the machine has no GPU", "the machine has no GPU"},
		"an invalid config": {"ROLLOUT_CONFIG=[", "the inference servers can't be set up", "the inference servers can't " +
			"be set up"},
		"too few GPUs": {"ROLLOUT_CONFIG=" + config + aPool + "tensor_parallel = 4\n", "tensor_parallel of the pool is 4",
			"the inference servers can't be set up: the machine has 2 GPUs, and tensor_parallel of the pool is 4"},
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
			if strings.Contains(m.calls, "start rollout-worker") || strings.Contains(m.calls, "stop rollout-overdue") {
				t.Errorf("the worker was started:\n%s", m.calls)
			}
		})
	}
}

// An engine that exits each time will not do better later: the machine leaves at once, long
// before the deadline, with the engine's own error.
func TestEngineThatExitsThreeTimesEndsTheBoot(t *testing.T) {
	t.Parallel()
	m := boot(t, "NEVER_READY=1", "RESTARTS=3", "ROLLOUT_READY_WITHIN=100000")
	has(t, "the list of calls", m.calls, "systemctl show --property NRestarts --value rollout-engine-0.service",
		"journalctl --no-pager --lines 200 --output cat --unit rollout-engine-0", "--give-up it could not be set up: the "+
			"inference server of GPU 0 exited three times before it was ready: ValueError: the engine has a reason", leaves)
	has(t, "the console", m.file("dev/console"), "INFO loading", "See root cause above", "this machine leaves its fleet")
	again := boot(t, "NEVER_READY=1", "RESTARTS=2")
	has(t, "an engine that exited twice", again.calls, "is not ready after 1 s", leaves)
}

// A large model takes 25 minutes. A pool whose deadline allows them works, and the boot of one
// with the default deadline ends with its reason.
func TestEngineThatNeeds25Minutes(t *testing.T) {
	t.Parallel()
	for setting, works := range map[string]bool{"": false, "boot_deadline = \"30m\"\n": true} {
		d, err := settings.ParseDeployment("rollout.toml", []byte(config+aPool+setting))
		if err != nil {
			t.Fatal(err)
		}
		within := int(d.MachinesOf(d.Pools[0]).BootDeadline.Std().Seconds())
		m := boot(t, "ROLLOUT_CONFIG="+config+aPool+setting, fmt.Sprintf("ROLLOUT_READY_WITHIN=%d", within),
			"READY_AT=1531", "ROLLOUT_LOOK_EVERY=60")
		has(t, "the list of calls", m.calls, fmt.Sprintf("--on-active=%d ", within+900), "--boot-stage model", "8000/health")
		if works {
			has(t, "the list of calls", m.calls, "--boot-stage ready", "systemctl stop rollout-overdue.timer",
				"systemctl start rollout-worker.service")
		} else {
			has(t, "the list of calls", m.calls, "--give-up it could not be set up: the inference server of GPU 0 is not ready "+
				"after 1200 s, and started after 0 s: ValueError: the engine has a reason", leaves)
		}
		if works == strings.Contains(m.calls, leaves) {
			t.Errorf("with %d s the machine works or leaves its fleet:\n%s", within, m.calls)
		}
	}
}

// A machine's own image may have the servers' image, also one that no registry has.
func TestImageThatTheMachineHasIsNotFetched(t *testing.T) {
	t.Parallel()
	m := boot(t, "HAS_IMAGE=1", "NO_REGISTRY=1")
	has(t, "the list of calls", m.calls, "docker image inspect vllm/vllm-openai:v0.21.0-cu129",
		"systemctl start --no-block")
	if strings.Contains(m.calls, "docker pull") {
		t.Errorf("the image is fetched:\n%s", m.calls)
	}
}

// Docker gets the password of a private registry with the machine's role when it fetches
// the image. A registry of others needs none.
func TestImageOfAPrivateRegistryIsFetchedWithTheMachinesRole(t *testing.T) {
	t.Parallel()
	const registry = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
	m := boot(t, "ROLLOUT_CONFIG="+config+aPool+"engine_image = \""+registry+"/team/vllm:v1\"\n")
	has(t, "the list of calls", m.calls, "docker pull --quiet "+registry+"/team/vllm:v1",
		"aws ecr get-login-password --region eu-west-1",
		`{"ServerURL":"`+registry+`","Username":"AWS","Secret":"ecr_password"}`, "systemctl start --no-block")
	if got := m.file("etc/rollout/docker/config.json"); got != `{"credHelpers":{"`+registry+`":"rollout"}}`+"\n" {
		t.Errorf("Docker has the config %s", got)
	}
	public := boot(t)
	if strings.Contains(public.calls, "get-login-password") {
		t.Errorf("a password is fetched for a public registry:\n%s", public.calls)
	}
}

// The time for fetching is part of that in which the servers must be ready.
func TestDeadlineCountsFromTheStartOfTheBoot(t *testing.T) {
	t.Parallel()
	m := boot(t, "NEVER_READY=1", "ROLLOUT_READY_WITHIN=0")
	has(t, "the list of calls", m.calls, "--on-active=900 ", "systemctl start --no-block", "8000/health",
		"is not ready after 0 s, and started after ", "ValueError: the engine has a reason")
	if looks := strings.Count(m.calls, "8000/health"); looks != 1 {
		t.Errorf("the machine looks %d times for a server that is late", looks)
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
		if strings.Contains(m.calls, "terminate") || strings.Contains(m.calls, "start rollout-worker") {
			t.Errorf("%s:\n%s", name, m.calls)
		}
	}
}

func TestOnlyTheServersGetTheSecret(t *testing.T) {
	t.Parallel()
	m := boot(t, "ROLLOUT_CONFIG="+config+"[cloud.secrets]\nallowlist = [\"hf-token\"]\n"+aPool)
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
	has(t, "the list of calls", m.calls, "systemctl enable rollout-worker.service", "systemctl start "+
		"rollout-worker.service")
	if worker := m.unit("worker"); strings.Contains(worker, "--engine") || strings.Contains(m.calls, "nvidia-smi") ||
		strings.Contains(m.calls, "terminate") {
		t.Errorf("%s\n%s", worker, m.calls)
	}
}

// The image of machines that train has the AWS CLI, cloud-init and systemd: nothing else is
// called that a plain system may lack, and no server starts.
func TestMachineThatTrainsNeedsTheWorkerAlone(t *testing.T) {
	t.Parallel()
	m := boot(t, "ROLLOUT_CONFIG="+config+"[[pool]]\nname = 'trainers'\nmodel = 'rollout/tiny'\nexecutor = 'train'\n",
		"ROLLOUT_POOL=trainers", "ROLLOUT_MODEL=rollout/tiny", `GPUS=\c`)
	// Amazon Linux keeps /tmp in memory.
	has(t, "the worker", m.unit("worker"), " TMPDIR=/var/tmp\n", `"--pool" "trainers" "--rented"`, "PrivateTmp=yes")
	has(t, "the list of calls", m.calls, "aws s3 cp --no-progress s3://assets/worker", "systemctl enable "+
		"rollout-worker.service", "systemctl start rollout-worker.service")
	for call := range strings.Lines(m.calls) {
		name, _, _ := strings.Cut(call, " ")
		if !slices.Contains([]string{"aws", "systemctl", "systemd-run", "id", "useradd"}, name) {
			t.Errorf("it calls %s", call)
		}
	}
	if units, err := filepath.Glob(filepath.Join(m.root, "etc/systemd/system/rollout-engine-*")); len(units) > 0 {
		t.Errorf("it has the servers %q, %v", units, err)
	}
}

// What a config says reaches the server as it is, and no shell reads it on its way.
func TestHostileValuesReachNoShell(t *testing.T) {
	t.Parallel()
	m := boot(t, "ROLLOUT_CONFIG="+config+`[[pool]]
name = "small"
model = 'a"b\c%h$HOME'
engine_args = ["--x", "'; touch /tmp/y; '", "$(touch $CALLS.broken)", "`+"`touch $CALLS.broken`"+`"]
engine_env = { A = "$(touch $CALLS.broken)" }
`)
	has(t, "the engine", m.unit("engine-0"), `"--model" "a\"b\\c%%h$$HOME"`, `"--x" "'; touch /tmp/y; '" `+
		`"$$(touch $$CALLS.broken)" "`+"`touch $$CALLS.broken`"+`"`)
	if got := m.file("etc/rollout/pool.env"); got != "A=$(touch $CALLS.broken)\n" {
		t.Errorf("the variables are %q", got)
	}
	if _, err := os.Stat(filepath.Join(m.root, "calls.broken")); !os.IsNotExist(err) {
		t.Errorf("a shell ran what the config says: %v", err)
	}
}

func TestBashParsesTheScript(t *testing.T) {
	t.Parallel()
	if out, err := exec.CommandContext(t.Context(), "bash", "-n", script).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
