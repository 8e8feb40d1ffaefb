package aws

import (
	"flag"
	"os"
	"rollout/localstack/subprocess"
	"testing"

	"github.com/aws/amazon-ec2-metadata-mock/pkg/cmd/root"
)

// TestMain is the metadata service, if it was started as such; see Metadata.
// Else it chooses defaults for tests that wait for services rather than
// compute: more of them at once, and fewer examples of properties, each of
// which is some requests. The flags ask for others.
func TestMain(m *testing.M) {
	if os.Getenv(metadataArgument) != "" {
		if err := root.NewCmd().Execute(); err != nil {
			panic(err)
		}
		return
	}
	subprocess.EndWithGoTest()
	for name, value := range map[string]string{"test.parallel": "24", "rapid.checks": "15"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	flag.Parse()
	os.Exit(m.Run())
}
