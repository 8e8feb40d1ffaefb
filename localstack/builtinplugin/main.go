// Command builtinplugin is the rollout command line with a plugin that is compiled in: a sample of
// plugin.Registry, which the tests of e2e run.
package main

import (
	"context"
	"encoding/json"
	"os"

	"rollout/gpuworker/isolation"
	"rollout/gpuworker/plugin"
	"rollout/scripts/rollout/command"
	"rollout/shared/clock"
	"rollout/shared/embedded/machine"
	"rollout/shared/fault"
)

func main() {
	if machine.RunGPUProbe(os.Args) || isolation.Main(os.Args) {
		return
	}
	os.Exit(command.Main(context.Background(), os.Args[1:], command.Env{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Clock: clock.System{}, Getenv: os.Getenv,
		Plugins: plugin.Registry{"length": func() (plugin.Builtin, error) { return length{}, nil }},
	}))
}

// length scores an answer by its bytes.
type length struct{}

// Call implements plugin.Builtin.
func (length) Call(_ context.Context, method string, payload []byte) ([]byte, error) {
	if method != "grade" {
		return nil, fault.New(fault.Invalid, "there is no method %s", method)
	}
	var request struct {
		Items []struct {
			Answer string `json:"answer"`
		} `json:"items"`
	}
	if err := json.Unmarshal(payload, &request); err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "read the answers")
	}
	scores := make([]int, len(request.Items))
	for i, item := range request.Items {
		scores[i] = len(item.Answer)
	}
	return json.Marshal(map[string]any{"scores": scores})
}
