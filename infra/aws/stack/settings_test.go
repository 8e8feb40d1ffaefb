package stack_test

import (
	"fmt"
	"strings"
	"testing"

	"rollout/infra/aws/stack"
	"rollout/shared/fault"
)

func TestReadConfigRefusesConfigsThatCannotBeDeployed(t *testing.T) {
	t.Parallel()
	const cloud = "schema_version = 1\n[cloud]\nprovider = \"aws\"\nregion = \"us-east-1\"\n"
	long := cloud + "[cloud.s3]\nbucket = \"acme\"\n"
	for n := range 60 {
		long += fmt.Sprintf("[[pool]]\nname = \"pool-%d\"\nmodel = \"organization/a-model-of-some-size-%d\"\n", n, n)
	}
	for name, c := range map[string]struct{ src, want string }{
		"no cloud":               {"schema_version = 1\n", "it describes an installation on this machine"},
		"no bucket":              {cloud, "cloud.s3.bucket"},
		"a misspelt key":         {strings.Replace(cloud, "region", "regoin", 1), "regoin"},
		"an invalid bucket name": {cloud + "[cloud.s3]\nbucket = \"Acme Bucket\"\n", "is not a valid bucket name"},
		"too long":               {long, "has room for 3072"},
	} {
		_, _, err := stack.ReadConfig("rollout.toml", []byte(c.src))
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want %q", name, err, c.want)
		}
	}
}

func TestCheckReportsAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	s := settings(t, func(s *stack.Settings) {
		s.Arch, s.Budget, s.Email, s.Zones, s.Deployment.Pools, s.Bucket = "mips", -1, "no-address", 9, nil, "mine"
	})
	err := s.Check()
	if !fault.Is(err, fault.Invalid) {
		t.Fatalf("%v", err)
	}
	for _, part := range []string{"mips", "budget", "no-address", "zones", "[[pool]]", `bucket is "mine"`} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not mention %s: %v", part, err)
		}
	}
}

func TestNewFailsIfAProgramWasNotBuilt(t *testing.T) {
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
			t.Errorf("got error %v, want the remedy %q", err, part)
		}
	}
}
