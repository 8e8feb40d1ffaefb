package aws

import (
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"

	"rollout/shared/aws"
)

// metadataArgument makes a process of this package's tests a metadata service.
const metadataArgument = "ROLLOUT_METADATA_MOCK"

// StartMetadata starts Amazon's stand-in for an instance's metadata service, which
// takes no request without a token, in a process of its own: it lives by global
// variables. arguments are those of its command, such as "spot". It returns the
// configuration of an instance that asks it.
func StartMetadata(t testing.TB, arguments ...string) awssdk.Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	cmd := exec.Command(self, append(arguments, "--imdsv2", "--hostname", "127.0.0.1", "--port", port)...)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{metadataArgument + "=1", "HOME=" + cmd.Dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	run(t, "the metadata service", port, cmd)
	cfg, err := aws.LoadConfig(t.Context(), slog.New(slog.DiscardHandler), config.WithRegion("us-east-1"), config.WithEC2IMDSEndpoint("http://127.0.0.1:"+port))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}
