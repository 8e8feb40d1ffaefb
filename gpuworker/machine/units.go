package machine

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"rollout/shared/config"
	"rollout/shared/core/servers"
	"rollout/shared/fault"
)

// Places on the machine, below its root.
const (
	unitFolder = "etc/systemd/system"
	// serversFile has a line for each server: its number, port, paths of readiness and
	// limits, and GPUs. The boot script reads it.
	serversFile = "opt/rollout/servers"
	// modelFile has the address of a model in a bucket, which the boot script fetches to
	// fetchedModel. It is absent for other models.
	modelFile = "opt/rollout/model"
	// imageFile has the name of the servers' image, which the boot script fetches.
	imageFile    = "opt/rollout/image"
	poolVars     = "etc/rollout/pool.env"
	secretVars   = "etc/rollout/engine.env"
	hubModels    = "/var/lib/rollout/models"
	fetchedModel = "/var/lib/rollout/model"
	inContainer  = "/model"
)

const (
	firstPort     = 8000
	containerPort = 8000
	halfUntil     = 80 // the compute capability, times 10, from which there is bfloat16
)

// gpu is a GPU as nvidia-smi lists it.
type gpu struct{ index, capability int }

// parseGPUs reads lines such as "0, 8.9": the index and the compute capability.
func parseGPUs(listed string) (gpus []gpu, err error) {
	for line := range strings.Lines(listed) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		index, capability, _ := strings.Cut(line, ",")
		major, minor, _ := strings.Cut(strings.TrimSpace(capability), ".")
		n, err := strconv.Atoi(strings.TrimSpace(index))
		x, capabilityErr := strconv.Atoi(major + cmp.Or(minor, "0"))
		if err != nil || n < 0 {
			return nil, fault.New(fault.Invalid, "nvidia-smi lists %.80q, want a line such as \"0, 8.9\"", line)
		}
		if capabilityErr != nil { // an old driver does not tell it
			x = halfUntil
		}
		gpus = append(gpus, gpu{n, x})
	}
	slices.SortFunc(gpus, func(a, b gpu) int { return cmp.Compare(a.index, b.index) })
	return gpus, nil
}

// Units are the systemd units of a pool's servers on one machine.
type Units struct {
	Pool     config.Pool
	Machines config.PoolMachines // with defaults
	Root     string              // of the file system
}

// Write writes a unit for each server, the variables of the servers, and the files for
// the boot script. A machine with fewer GPUs than a server needs is Invalid; GPUs that
// are left over stay unused.
func (u Units) Write(gpus []gpu) error {
	k := u.Machines.TensorParallel
	if len(gpus) < k {
		return &fault.Error{Kind: fault.Invalid,
			Err:    fmt.Errorf("the machine has %d GPUs, and tensor_parallel of the pool is %d", len(gpus), k),
			Remedy: "name instance_types with as many GPUs"}
	}
	var list strings.Builder
	server, _ := servers.Of(u.Machines.Server)
	for group := range slices.Chunk(gpus[:len(gpus)/k*k], k) {
		if err := u.write(filepath.Join(unitFolder, unitName(group)), 0o644, u.unit(server, group)); err != nil {
			return err
		}
		n := group[0].index
		fmt.Fprintf(&list, "%d %d %s %s %s\n", n, firstPort+n, server.Ready, server.Limits, indexes(group))
	}
	if err := u.write(imageFile, 0o644, u.Machines.EngineImage+"\n"); err != nil {
		return err
	}
	if image, private := u.Machines.PrivateImage(); private {
		if err := u.signIn(image); err != nil {
			return err
		}
	}
	if u.Pool.ModelSource() == config.ModelOfBucket {
		if err := u.write(modelFile, 0o644, u.Pool.Model+"\n"); err != nil {
			return err
		}
	}
	if err := u.write(poolVars, 0o600, u.variables(server)); err != nil {
		return err
	}
	return u.write(serversFile, 0o644, list.String())
}

// variables returns the servers' variables, a line for each. The user's come last, and count.
func (u Units) variables(server servers.Server) string {
	var lines strings.Builder
	if server.CacheVariable != "" {
		fmt.Fprintf(&lines, "%s=%s\n", server.CacheVariable, path.Join(server.Cache, "hub"))
	}
	for _, name := range slices.Sorted(maps.Keys(u.Machines.EngineEnv)) {
		fmt.Fprintf(&lines, "%s=%s\n", name, u.Machines.EngineEnv[name])
	}
	return lines.String()
}

func unitName(group []gpu) string { return fmt.Sprintf("rollout-engine-%d.service", group[0].index) }

// indexes lists the GPUs of a server, such as "0,1".
func indexes(group []gpu) string {
	names := make([]string, len(group))
	for i, g := range group {
		names[i] = strconv.Itoa(g.index)
	}
	return strings.Join(names, ",")
}

// unit returns the unit of a group's server. The container has no capability of root, and
// its port is on the loopback address alone.
func (u Units) unit(server servers.Server, group []gpu) string {
	name := fmt.Sprintf("rollout-engine-%d", group[0].index)
	model, mounts := u.place(server)
	start := startOf(u.Pool, u.Machines, model)
	start.Host, start.Port = "0.0.0.0", containerPort
	start.Halves = slices.ContainsFunc(group, func(g gpu) bool { return g.capability < halfUntil })
	devices, shared := "device="+indexes(group), "2g"
	if len(group) > 1 {
		devices, shared = `"`+devices+`"`, "16g" // Docker reads a list of its own, in which commas need quotes
	}
	command := []string{"/usr/bin/docker", "run", "--rm", "--name", name, "--gpus", devices, "--shm-size", shared,
		"--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--env-file", "/" + secretVars,
		"--env-file", "/" + poolVars}
	for _, m := range mounts {
		command = append(command, "--volume", m)
	}
	command = append(command, "--publish", fmt.Sprintf("127.0.0.1:%d:%d", firstPort+group[0].index, containerPort),
		u.Machines.EngineImage)
	command = append(command, server.Arguments(start)...)
	return `[Unit]
Description=rollout: inference server of GPU ` + indexes(group) + `
After=docker.service network-online.target
Wants=network-online.target
Requires=docker.service
StartLimitIntervalSec=0

[Service]
ExecStartPre=-/usr/bin/docker rm --force ` + name + `
ExecStart=` + quoteWords(command) + `
ExecStop=/usr/bin/docker stop --time 5 ` + name + `
Restart=always
RestartSec=3
TimeoutStopSec=10

[Install]
WantedBy=multi-user.target
`
}

// place returns the model's name or path in the container, and the folders that are
// mounted there, in Docker's spelling. The name of a file that only the list of a model's
// files tells is "": who fetches the model adds it to the servers' variables.
func (u Units) place(server servers.Server) (model string, mounts []string) {
	mounts = []string{hubModels + ":" + server.Cache}
	folder, file := fetchedModel, ""
	switch u.Pool.ModelSource() {
	case config.ModelOfHub, config.ModelBuiltIn:
		return u.Pool.Model, mounts
	case config.ModelOfFolder:
		folder = u.Pool.Model
	}
	if server.Name == servers.LlamaCpp { // it serves one file
		file = path.Base(u.Pool.Model)
	}
	if server.Name == servers.LlamaCpp && u.Pool.ModelSource() == config.ModelOfFolder {
		folder = path.Dir(folder)
	}
	mounts = append(mounts, folder+":"+inContainer+":ro")
	if server.Name == servers.LlamaCpp && path.Ext(file) != ".gguf" {
		return "", mounts
	}
	return path.Join(inContainer, file), mounts
}

// startOf returns what the pool's server shall serve, without an address.
func startOf(p config.Pool, m config.PoolMachines, model string) servers.Start {
	start := servers.Start{Model: model, Name: p.Model, Tokenizer: m.Tokenizer, Parallel: m.TensorParallel,
		More: m.EngineArgs}
	if p.ModelSource() == config.ModelOfHub {
		start.Revision = p.Revision
	}
	return start
}

// quoteWords returns a command for a unit file. systemd expands "%" and "$", and ends a
// line at a line feed.
func quoteWords(words []string) string {
	quoter := strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`, `$`, `$$`, "\n", `\n`, "\r", `\r`)
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = `"` + quoter.Replace(w) + `"`
	}
	quoted[0] = words[0] // the program's path
	return strings.Join(quoted, " ")
}

// write writes a file whole, with its folder.
func (u Units) write(name string, mode os.FileMode, text string) error {
	at := filepath.Join("/", u.Root, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return fault.WithKind(fault.Unavailable, err, "make a folder")
	}
	if err := os.WriteFile(at, []byte(text), mode); err != nil {
		return fault.WithKind(fault.Unavailable, err, "write %s", name)
	}
	return fault.WithKind(fault.Unavailable, os.Chmod(at, mode), "write %s", name)
}
