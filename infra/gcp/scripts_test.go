package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"rollout/gpuworker/machine"
	"rollout/shared/config"
)

// scriptConfig is the config of the scripts' machines.
const scriptConfig = head + "[[pool]]\nname = 'small'\nmodel = 'org/small'\nrevision = 'v1'\n"

// actAsWorker lets the test program stand for the worker program, whose command "machine"
// the scripts call. It returns false if no script called.
func actAsWorker() bool {
	if os.Getenv("AS_WORKER") == "" {
		return false
	}
	worker := &cobra.Command{Use: "gpuworker", SilenceUsage: true}
	worker.AddCommand(machine.Command())
	if worker.Execute() != nil { // it prints the error
		os.Exit(1)
	}
	return true
}

// asWorker is a script's line that calls the worker's command "machine".
const asWorker = `case "$2" in *-model) exit ;; esac
[ "$1" != machine ] || AS_WORKER=1 exec "$TEST_PROGRAM" "$@"`

// computer is a folder with programs that stand for those of a machine. Each notes its
// arguments, and then does what its script says.
type computer struct {
	root  string
	calls string // the file of notes
}

// newComputer makes the programs, by the names of the scripts.
func newComputer(t *testing.T, scripts map[string]string) computer {
	t.Helper()
	c := computer{root: t.TempDir()}
	c.calls = filepath.Join(c.root, "calls")
	for _, dir := range []string{"bin", "dev", "tmp", "programs", "proc"} {
		if err := os.Mkdir(filepath.Join(c.root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(c.root, "proc/uptime"), []byte("31.70 120.05\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, script := range scripts {
		c.program(t, filepath.Join("bin", name), script)
	}
	return c
}

// program writes a program of the computer.
func (c computer) program(t *testing.T, path, script string) {
	t.Helper()
	text := "#!/usr/bin/env bash\necho \"" + filepath.Base(path) + " $*\" >>" + c.calls + "\n" + script + "\n"
	if err := os.WriteFile(filepath.Join(c.root, path), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// command returns a script as a command with more variables.
func (c computer) command(t *testing.T, script string, variables ...string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", script)
	cmd.Env = append([]string{"PATH=" + filepath.Join(c.root, "bin") + ":/usr/bin:/bin", "ROLLOUT_ROOT=" + c.root,
		"TMPDIR=" + filepath.Join(c.root, "tmp"), "ROLLOUT_POOL=small", "ROLLOUT_MODEL=org/small",
		"ROLLOUT_CONFIG=" + scriptConfig, "ROLLOUT_LOOK_EVERY=0.01", "TEST_PROGRAM=" + program}, variables...)
	return cmd
}

// called returns what the programs noted.
func (c computer) called(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(c.calls)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// have fails the test unless a call begins so.
func have(t *testing.T, calls []string, begin string) {
	t.Helper()
	if !slices.ContainsFunc(calls, func(call string) bool { return strings.HasPrefix(call, begin) }) {
		t.Errorf("nobody called %q:\n%s", begin, strings.Join(calls, "\n"))
	}
}

// A task serves the model, lets the worker work, and ends in good order when it is asked to.
func TestTaskDrainsItsWorkerAtSIGTERM(t *testing.T) {
	t.Parallel()
	c := newComputer(t, map[string]string{"python3": "exec sleep 60",
		"curl": `grep -q ^python3 "${0%/*}/../calls"`})
	c.program(t, "programs/worker-1", asWorker+`
trap 'echo "gpuworker drains" >>`+c.calls+`; kill $!; exit 0' TERM
until grep -q '^State:.S' /proc/$PPID/status; do :; done # timeout handles signals once it waits
echo ready >&3
sleep 60 & wait`)
	ready, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := c.command(t, "cloud-run.sh", "ROLLOUT_WORKER=worker-1", "ROLLOUT_FOLDER="+filepath.Join(c.root, "programs"))
	cmd.ExtraFiles = []*os.File{writer}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = writer.Close() // the child has its own
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the task ended with %v", err)
	}
	calls := c.called(t)
	have(t, calls, "worker-1 machine command --pool small")
	have(t, calls, "python3 -m vllm.entrypoints.openai.api_server --model org/small --served-model-name org/small "+
		"--host 127.0.0.1 --port 8000 --revision v1")
	have(t, calls, "worker-1 --cloud gcp --pool small --log-format json --engine http://127.0.0.1:8000/v1")
	have(t, calls, "gpuworker drains")
}

// The copy comes before the server starts, and to where servers look for it. The task works
// on whether the bucket has one or not.
func TestTaskReadsItsModelFromTheBucketAndStoresIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ variable, folder string }{
		"the usual folder":         {"HOME=/home/x", "/home/x/.cache/huggingface/hub"},
		"the folder of engine_env": {"HF_HOME=/models", "/models/hub"},
	} {
		for _, status := range []string{"0", "1"} {
			m := newComputer(t, map[string]string{"python3": `echo "hub $HF_HUB_CACHE $LLAMA_CACHE" >>"${0%/*}/../calls"
exec sleep 60`, "curl": `grep -q ^hub "${0%/*}/../calls"`})
			m.program(t, "programs/worker-1", `case "$2" in
fetch-model) exit `+status+` ;;
store-model) echo stored >"$TMPDIR/stored"; exit `+status+` ;;
esac
[ "$1" != machine ] || AS_WORKER=1 exec "$TEST_PROGRAM" "$@"
until [ -s "$TMPDIR/stored" ]; do :; done`)
			cmd := m.command(t, "cloud-run.sh", "ROLLOUT_WORKER=worker-1", c.variable,
				"ROLLOUT_FOLDER="+filepath.Join(m.root, "programs"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: the task ended with %v: %s", name, err, out)
			}
			calls := m.called(t)
			fetched := slices.Index(calls, "worker-1 machine fetch-model --pool small --hub-cache "+c.folder)
			served := slices.Index(calls, "hub "+c.folder+" "+c.folder)
			stored := slices.Index(calls, "worker-1 machine store-model --pool small --hub-cache "+c.folder)
			if fetched < 0 || served < fetched || stored < served {
				t.Errorf("%s: it fetches, serves and stores at %d, %d, %d:\n%s", name, fetched, served, stored,
					strings.Join(calls, "\n"))
			}
		}
	}
}

func TestTaskEndsItsWorkerBeforeItsTimeIsUp(t *testing.T) {
	t.Parallel()
	c := newComputer(t, map[string]string{"python3": "exec sleep 60", "curl": "exit 0",
		"timeout": `exec /usr/bin/timeout "${@:1:4}" 1 "${@:6}"`}) // of the time that is left, the test takes a second
	c.program(t, "programs/worker-1", asWorker+"\nexec sleep 60")
	cmd := c.command(t, "cloud-run.sh", "ROLLOUT_WORKER=worker-1", "ROLLOUT_FOLDER="+filepath.Join(c.root, "programs"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the task ended with %v: %s", err, out)
	}
	have(t, c.called(t), "timeout --signal TERM --kill-after 20 2") // thousands of seconds
}

// A task that is asked to end while its server starts has done no work: the reason is
// recorded, so that tasks that end like this one after another are seen.
func TestTaskThatIsAskedToEndEarlyGivesUp(t *testing.T) {
	t.Parallel()
	c := newComputer(t, map[string]string{"python3": "exec sleep 60", "curl": "echo asked >&3; exec sleep 5"})
	c.program(t, "programs/worker-1", asWorker)
	asked, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := c.command(t, "cloud-run.sh", "ROLLOUT_WORKER=worker-1", "ROLLOUT_FOLDER="+filepath.Join(c.root, "programs"))
	cmd.ExtraFiles = []*os.File{writer}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = writer.Close() // the child has its own
	if _, err := asked.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the task succeeded")
	}
	have(t, c.called(t), "worker-1 --cloud gcp --pool small --log-format json --give-up the task was asked to end "+
		"before its inference server was ready")
}

func TestTaskWithoutTimeToWorkGivesUp(t *testing.T) {
	t.Parallel()
	for _, workFor := range []string{"0", "-5"} {
		c := newComputer(t, map[string]string{"python3": "exec sleep 60", "curl": "exit 0"})
		c.program(t, "programs/worker-1", asWorker)
		cmd := c.command(t, "cloud-run.sh", "ROLLOUT_WORKER=worker-1", "ROLLOUT_WORK_FOR="+workFor,
			"ROLLOUT_FOLDER="+filepath.Join(c.root, "programs"))
		if err := cmd.Run(); err == nil {
			t.Error("the task succeeded")
		}
		have(t, c.called(t), "worker-1 --cloud gcp --pool small --log-format json --engine http://127.0.0.1:8000/v1 "+
			"--give-up the inference server was ready after ")
	}
}

func TestTaskWithoutAnEngineGivesUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ engine, within, want string }{
		"the engine dies": {"echo 'ValueError: too long'; exit 1", "60",
			"the inference server ended before it was ready: ValueError: too long"},
		"the engine never comes": {"exec sleep 60", "0", "the inference server was not ready after 0 s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			machine := newComputer(t, map[string]string{"python3": c.engine, "curl": "exit 7"})
			machine.program(t, "programs/worker-1", asWorker)
			cmd := machine.command(t, "cloud-run.sh", "ROLLOUT_WORKER=worker-1", "ROLLOUT_READY_WITHIN="+c.within,
				"ROLLOUT_FOLDER="+filepath.Join(machine.root, "programs"))
			if err := cmd.Run(); err == nil {
				t.Error("the task succeeded")
			}
			have(t, machine.called(t), "worker-1 --cloud gcp --pool small --log-format json --give-up "+c.want)
		})
	}
}

// What a config says reaches the server as it is, and no shell reads it on its way.
func TestHostileArgumentsReachNoShell(t *testing.T) {
	t.Parallel()
	c := newComputer(t, map[string]string{"python3": `printf '<%s>' "$@" >"$TMPDIR/arguments"; exit 1`, "curl": "exit 7"})
	c.program(t, "programs/worker-1", asWorker)
	cmd := c.command(t, "cloud-run.sh", "ROLLOUT_WORKER=worker-1", "ROLLOUT_FOLDER="+filepath.Join(c.root, "programs"),
		"ROLLOUT_CONFIG="+scriptConfig+"engine_args = ['--x y', '$(touch $TMPDIR/broken)', \"it's\", '*']\n")
	if err := cmd.Run(); err == nil {
		t.Error("the task succeeded")
	}
	got, err := os.ReadFile(filepath.Join(c.root, "tmp/arguments"))
	if err != nil || !strings.HasSuffix(string(got), "<--x y><$(touch $TMPDIR/broken)><it's><*>") {
		t.Errorf("the server got %s, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(c.root, "tmp/broken")); !os.IsNotExist(err) {
		t.Errorf("a shell ran what the config says: %v", err)
	}
}

// bootPrograms are the programs of a machine whose boot succeeds. curl answers as the
// metadata server, Secret Manager and Cloud Storage do.
func bootPrograms() map[string]string {
	return map[string]string{
		"curl": `for a; do last=$a; case $previous in -o) to=$a ;; esac; previous=$a; done
case $* in
*/token*) echo '{"access_token": "secret-token"}' ;;
*versions/latest:access*) echo '{"payload": {"data": "aHViLXRva2Vu"}}' ;;
*storage.googleapis.com*)
  printf '%s\n' '#!/bin/sh' 'echo "gpuworker $*" >>"$ROLLOUT_ROOT/calls"' \
    '[ "$1" != machine ] || AS_WORKER=1 exec "$TEST_PROGRAM" "$@"' >"$to" ;;
*/health*) read -r up _ <"$ROLLOUT_ROOT/proc/uptime"
  [ -z "${NEVER_READY:-}" ] && [ "${up%%.*}" -ge "${READY_AT:-0}" ] ;;
*/v1/models*) echo '{"data":[{"max_model_len":4096}]}' ;;
*attributes/rollout-leave*) echo https://leave.example ;;
*identity*) echo identity-token ;;
*leave.example*) cat >"${0%/*}/../leave" ;;
esac`,
		"systemctl": `case $* in *NRestarts*) echo "${RESTARTS:-0}" ;; esac`, "systemd-run": "", "iptables": "",
		"useradd": "", "id": "exit 1", "journalctl": "echo 'ValueError: too long'", "gcloud": "",
		"docker":     `case "$*" in "image inspect"*) exit 1 ;; esac`,
		"nvidia-smi": "echo 0, 8.9; echo 1, 8.9",
	}
}

// machineVariables are those of a machine, besides the ones of every computer.
var machineVariables = []string{"ROLLOUT_PROJECT=acme-ml",
	"ROLLOUT_PROGRAMS=acme-rollout-programs", "ROLLOUT_WORKER=gpuworker-1", "ROLLOUT_HUB_SECRET=rollout-hf-token",
	"ROLLOUT_AUDIENCE=https://rollout-leave.acme-ml.internal"}

func TestMachineServesEachGPUAndWorks(t *testing.T) {
	t.Parallel()
	c := newComputer(t, bootPrograms())
	if out, err := c.command(t, "bootstrap.sh", machineVariables...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	calls := c.called(t)
	have(t, calls, "iptables -I DOCKER-USER -d metadata.google.internal -p tcp --dport 80 -j DROP")
	have(t, calls, "systemctl start rollout-disks.service")
	have(t, calls, "docker pull --quiet vllm/vllm-openai:v0.21.0-cu129")
	have(t, calls, "systemctl start --no-block rollout-engine-0.service rollout-engine-1.service")
	have(t, calls, "systemctl start rollout-worker.service")
	for path, want := range map[string]string{
		"etc/systemd/system/rollout-engine-1.service": `"vllm/vllm-openai:v0.21.0-cu129" "--model" "org/small"`,
		"etc/systemd/system/rollout-worker.service": `"--gpus" "0,1" "--gpus-per-server" "1" "--engine" ` +
			`"http://127.0.0.1:8000/v1,http://127.0.0.1:8001/v1"`,
		"etc/rollout/engine.env":   "HF_TOKEN=hub-token",
		"etc/rollout/rollout.toml": "schema_version = 1",
		"dev/console":              "the inference server of GPU 1 has a context of 4096 tokens",
	} {
		text, err := os.ReadFile(filepath.Join(c.root, path))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s is %s, want %s (%v)", path, text, want, err)
		}
	}
	if slices.ContainsFunc(calls, func(call string) bool { return strings.Contains(call, "secret-token") }) {
		t.Error("the machine's token is an argument of a program, which others can see")
	}
}

// The script runs at each start of the machine. After a reboot it serves and works as before,
// with the image and the user that it has.
func TestMachineComesBackAfterAReboot(t *testing.T) {
	t.Parallel()
	programs := bootPrograms()
	programs["docker"] = `case $* in
"image inspect"*) [ -e "$ROLLOUT_ROOT/image" ] ;;
pull*) touch "$ROLLOUT_ROOT/image" ;;
esac`
	programs["id"], programs["useradd"] = `[ -e "$ROLLOUT_ROOT/user" ]`, `touch "$ROLLOUT_ROOT/user"`
	c, seen := newComputer(t, programs), 0
	for boot, once := range []bool{true, false} {
		if out, err := c.command(t, "bootstrap.sh", machineVariables...).CombinedOutput(); err != nil {
			t.Fatalf("boot %d: %v: %s", boot+1, err, out)
		}
		calls := c.called(t)[seen:]
		seen += len(calls)
		at := func(begin string) int {
			return slices.IndexFunc(calls, func(call string) bool { return strings.HasPrefix(call, begin) })
		}
		hidden, serves := at("iptables -I DOCKER-USER"), at("systemctl start --no-block rollout-engine-0")
		works := at("systemctl start rollout-worker.service")
		if hidden < 0 || serves < hidden || works < serves {
			t.Errorf("boot %d: it hides the metadata, serves and works at %d, %d, %d:\n%s", boot+1, hidden, serves, works,
				strings.Join(calls, "\n"))
		}
		if fetches, makes := at("docker pull") >= 0, at("useradd") >= 0; fetches != once || makes != once {
			t.Errorf("boot %d: it fetches the image: %v, and makes the user: %v; want %v", boot+1, fetches, makes, once)
		}
	}
}

// A machine that trains fetches the worker and starts it: no server, container or GPU.
func TestMachineThatTrainsNeedsTheWorkerAlone(t *testing.T) {
	t.Parallel()
	programs := bootPrograms()
	for _, name := range []string{"nvidia-smi", "docker", "iptables"} {
		programs[name] = "exit 1"
	}
	c := newComputer(t, programs)
	variables := append([]string{"ROLLOUT_POOL=trainers", "ROLLOUT_MODEL=rollout/tiny",
		"ROLLOUT_CONFIG=" + head + trainingPool}, machineVariables...)
	if out, err := c.command(t, "bootstrap.sh", variables...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	calls := c.called(t)
	have(t, calls, "systemctl start rollout-worker.service")
	for _, call := range calls {
		for _, other := range []string{"nvidia-smi", "docker", "iptables", "gpuworker", "systemctl poweroff"} {
			if strings.HasPrefix(call, other) {
				t.Errorf("it calls %s", call)
			}
		}
	}
	unit, err := os.ReadFile(filepath.Join(c.root, "etc/systemd/system/rollout-worker.service"))
	if err != nil || !strings.Contains(string(unit), `"--pool" "trainers" "--rented"`) ||
		!strings.Contains(string(unit), "\nEnvironment=TMPDIR=/var/tmp\n") || // not in memory, as /tmp may be
		strings.Contains(string(unit), "--engine") {
		t.Errorf("the worker's unit is %s, %v", unit, err)
	}
}

// The servers start after the metadata are hidden from them, also after a reboot: nothing
// is enabled.
func TestServersNeverRunBesideTheMetadata(t *testing.T) {
	t.Parallel()
	c := newComputer(t, bootPrograms())
	if out, err := c.command(t, "bootstrap.sh", append([]string{"ROLLOUT_CONFIG=" + strings.Replace(scriptConfig,
		"model = 'org/small'\nrevision = 'v1'", "model = 'gs://acme-models/llama'", 1)}, machineVariables...)...,
	).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	calls := c.called(t)
	at := func(begin string) int {
		return slices.IndexFunc(calls, func(call string) bool { return strings.HasPrefix(call, begin) })
	}
	hidden, started := at("iptables -I DOCKER-USER"), at("systemctl start --no-block rollout-engine-0")
	fetched := at("gcloud storage rsync --recursive gs://acme-models/llama " + c.root + "/var/lib/rollout/model")
	if hidden < 0 || fetched < 0 || started < hidden || started < fetched || at("systemctl enable") >= 0 {
		t.Errorf("hidden at %d, fetched at %d, started at %d:\n%s", hidden, fetched, started, strings.Join(calls, "\n"))
	}
}

func TestEngineThatExitsThreeTimesEndsTheBoot(t *testing.T) {
	t.Parallel()
	c := newComputer(t, bootPrograms())
	out, _ := c.command(t, "bootstrap.sh", append([]string{"NEVER_READY=1", "RESTARTS=3"}, machineVariables...)...,
	).CombinedOutput() // it ends by the power
	const want = "it could not be set up: the inference server of GPU 0 exited three times before it was ready: " +
		"ValueError: too long"
	if !strings.Contains(string(out), "this machine gives up: "+want) {
		t.Errorf("it said %s, want %s", out, want)
	}
	have(t, c.called(t), "gpuworker --cloud gcp --config "+c.root+"/etc/rollout/rollout.toml --pool small --give-up "+want)
}

// A large model takes 25 minutes. A pool whose deadline allows them works, and the boot of one
// with the default deadline ends with its reason. Nothing waits: time passes by what the script
// sleeps.
func TestEngineThatNeeds25Minutes(t *testing.T) {
	t.Parallel()
	for setting, works := range map[string]bool{"": false, "boot_deadline = '30m'\n": true} {
		programs := bootPrograms()
		programs["sleep"] = `read -r up _ <"$ROLLOUT_ROOT/proc/uptime"
echo "$((${up%%.*} + $1)).00 0.00" >"$ROLLOUT_ROOT/proc/uptime"`
		d, err := config.ParseDeployment("rollout.toml", []byte(scriptConfig+setting))
		if err != nil {
			t.Fatal(err)
		}
		within := int(d.MachinesOf(d.Pools[0]).BootDeadline.Std().Seconds())
		c := newComputer(t, programs)
		out, _ := c.command(t, "bootstrap.sh", append([]string{"ROLLOUT_CONFIG=" + scriptConfig + setting,
			fmt.Sprintf("ROLLOUT_READY_WITHIN=%d", within), "READY_AT=1531", "ROLLOUT_LOOK_EVERY=60"},
			machineVariables...)...).CombinedOutput() // it may end by the power
		calls := c.called(t)
		have(t, calls, fmt.Sprintf("systemd-run --quiet --unit rollout-overdue --on-active=%d ", within+900))
		if works {
			have(t, calls, "systemctl start rollout-worker.service")
		} else {
			have(t, calls, "gpuworker --cloud gcp --config "+c.root+"/etc/rollout/rollout.toml --pool small --give-up it "+
				"could not be set up: the inference server of GPU 0 is not ready after 1200 s, and started after 0 s: "+
				"ValueError: too long")
		}
		if left := slices.Contains(calls, "systemctl poweroff"); left == works {
			t.Errorf("with %d s the machine works or leaves its group: %s", within, out)
		}
	}
}

// A machine that can't be set up records why, leaves its group by its identity token, and
// powers off.
func TestMachineThatCannotWorkGivesUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		program, script string
		want            string
	}{
		"no GPU":      {"nvidia-smi", "exit 9", "the machine has no GPU, or its driver does not work"},
		"no firewall": {"iptables", "exit 1", "the machine's metadata can't be hidden"},
		"no registry": {"docker", "echo 'toomanyrequests: come later' >&2; exit 1",
			"the image vllm/vllm-openai:v0.21.0-cu129 can't be fetched: toomanyrequests: come later"},
		"no worker unit": {"systemctl", `case $* in "start rollout-worker.service") exit 1 ;; esac`,
			"the worker does not start"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			programs := bootPrograms()
			programs[c.program], programs["sleep"] = c.script, "" // between tries
			machine := newComputer(t, programs)
			out, _ := machine.command(t, "bootstrap.sh", machineVariables...).CombinedOutput() // it ends by the power
			if !strings.Contains(string(out), "this machine gives up: it could not be set up: "+c.want) {
				t.Errorf("it said %s, want %s", out, c.want)
			}
			calls := machine.called(t)
			have(t, calls, "systemctl poweroff")
			have(t, calls, "curl -fsS -m 10 -H Metadata-Flavor: Google http://metadata.google.internal/computeMetadata/v1/"+
				"instance/service-accounts/default/identity?audience=https://rollout-leave.acme-ml.internal&format=full")
			asked, err := os.ReadFile(filepath.Join(machine.root, "leave"))
			want := "header = \"Authorization: Bearer identity-token\"\ndata = \"{\\\"token\\\":\\\"identity-token\\\"}\"\n"
			if err != nil || string(asked) != want {
				t.Errorf("it asked to leave with %q, %v, want %q", asked, err, want)
			}
		})
	}
}
