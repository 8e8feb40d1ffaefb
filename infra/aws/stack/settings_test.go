package stack_test

import (
	"fmt"
	"strings"
	"testing"

	"rollout/infra/aws/stack"
	"rollout/shared/fault"
)

func TestAConfigThatCantBeDeployedIsRefused(t *testing.T) {
	t.Parallel()
	long := "schema_version = 1\n[cloud]\nprovider = \"aws\"\nregion = \"us-east-1\"\n[cloud.s3]\nbucket = \"acme\"\n"
	for n := range 60 {
		long += fmt.Sprintf("[[pool]]\nname = \"pool-%d\"\nmodel = \"organization/a-model-of-some-size-%d\"\n", n, n)
	}
	for src, part := range map[string]string{
		"schema_version = 1\n": "it is of a laptop",
		"schema_version = 1\n[cloud]\nprovider = \"aws\"\nregion = \"us-east-1\"\n":                                       "cloud.s3.bucket",
		"schema_version = 1\n[cloud]\nprovider = \"aws\"\nregoin = \"us-east-1\"\n":                                       "regoin",
		"schema_version = 1\n[cloud]\nprovider = \"aws\"\nregion = \"us-east-1\"\n[cloud.s3]\nbucket = \"Acme Bucket\"\n": "no name of a bucket",
		long: "has room for 3072",
	} {
		_, _, err := stack.ReadConfig("rollout.toml", []byte(src))
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), part) {
			t.Errorf("%.60q: %v", src, err)
		}
	}
}

func TestEverythingThatIsWrongWithTheSettingsIsToldAtOnce(t *testing.T) {
	t.Parallel()
	s := settings(t, func(s *stack.Settings) {
		s.Arch, s.Budget, s.Email, s.Zones, s.Deployment.Pools, s.Bucket = "mips", -1, "nobody", 9, nil, "mine"
	})
	err := s.Check()
	if !fault.Is(err, fault.Invalid) {
		t.Fatalf("%v", err)
	}
	for _, part := range []string{"mips", "budget", "nobody", "zones", "[[pool]]", `bucket is "mine"`} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("nothing is said of %s: %v", part, err)
		}
	}
}

func TestAProgramThatWasNotBuiltIsMissed(t *testing.T) {
	t.Parallel()
	for part, change := range map[string]func(*stack.Settings){
		"make lambda":         func(s *stack.Settings) { s.FunctionsDir = t.TempDir() },
		"make machine-worker": func(s *stack.Settings) { s.WorkerBinary = t.TempDir() + "/gpuworker" },
	} {
		s := settings(t, change)
		synthesis.Lock()
		_, err := stack.New(app(t), s)
		synthesis.Unlock()
		if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", part, err)
		}
	}
}
