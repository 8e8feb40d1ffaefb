package emulators

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

// metadataVariable, in the environment, makes this test program a metadata
// service; see TestMain.
const metadataVariable = "ROLLOUT_METADATA_MOCK"

// StartMetadata starts amazon-ec2-metadata-mock, Amazon's mock of an instance's
// metadata service, which requires a token. It runs in its own process since it
// uses global variables. arguments are those of its command, such as "spot". It
// returns the SDK configuration of an instance that uses it.
func StartMetadata(t testing.TB, arguments ...string) awssdk.Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	cmd := exec.Command(self, append(arguments, "--imdsv2", "--hostname", "127.0.0.1", "--port", port)...)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{metadataVariable + "=1", "HOME=" + cmd.Dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	run(t, "the metadata service", port, cmd)
	cfg, err := aws.LoadConfig(t.Context(), slog.New(slog.DiscardHandler), config.WithRegion("us-east-1"),
		config.WithEC2IMDSEndpoint("http://127.0.0.1:"+port))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}
