package api_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/functions/diagnosis"
	"rollout/functions/status"
	"rollout/functions/status/statustest"
	"rollout/shared/cloud"
	"rollout/shared/core/run"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

func TestStatusJSONMatchesGoldenFiles(t *testing.T) {
	t.Parallel()
	done := statustest.Midway()
	done.State.Phase, done.State.Reason = run.CompletedWithErrors, run.ReasonDone
	done.State.EndedAt = noon.Add(101 * time.Second)
	for name, p := range map[string]status.Progress{
		"new":     {Hints: cloud.OneMachine().Hints, Manifest: statustest.Manifest(runA), State: run.New(runA)},
		"running": statustest.Midway(),
		"ended":   done,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := json.MarshalIndent(diagnosis.StatusOf(p, noon.Add(41*time.Second)), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", "status_"+name+".json")
			if *rewrite {
				if err := os.WriteFile(golden, append(got, '\n'), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), string(got)+"\n"); d != "" {
				t.Errorf("the contract changed (-want +got):\n%s", d)
			}
		})
	}
}
