package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	"rollout/shared/core/run"
)

// A process that may have few files open says so before it begins, with both
// numbers; with fewer requests at once it works.
func TestFewOpenFiles(t *testing.T) {
	t.Parallel()
	s := serve(t)
	i := install(t, s.url, 0, smallBites) // in_flight = 4
	i.up.signal(15)
	i.up.wantExit(0)
	id := i.submit(promptsFile(t, simple(60)))
	limited := func(files int, program, args string) *process {
		return shell(t, fmt.Sprintf("ulimit -n %d && exec %q %s --dir %q --engine %q", files, filepath.Join(binaries, program), args, i.dir, s.url))
	}
	for _, command := range [][2]string{{rollout, "up --listen off"}, {rollout, "up --listen off --workers 2"}, {gpuworker, ""}} {
		p := limited(60, command[0], command[1])
		p.wantExit(2)
		p.wantStderr("in_flight = 4 needs 68 open files", "may have 60", "ulimit -n 68")
	}
	limited(80, rollout, "up --once --listen off").wantExit(0)
	i.start()
	if r, _ := i.show(id); r.Phase != run.Completed || r.Items.Done != 60 {
		t.Errorf("the run is %s with %d answers", r.Phase, r.Items.Done)
	}
}
