package emulators

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/aws/amazon-ec2-metadata-mock/pkg/cmd/root"

	"rollout/localstack/subprocess"
)

// TestMain runs the metadata service if StartMetadata started the process, or a process
// of the system if the test of rounds did. Else it runs the tests, with defaults for
// tests that wait for services: more of them in parallel, and fewer examples of
// properties, since each takes several requests. Flags override the defaults.
func TestMain(m *testing.M) {
	if os.Getenv(metadataVariable) != "" {
		if err := root.NewCmd().Execute(); err != nil {
			panic(err)
		}
		return
	}
	if text := os.Getenv(roundsVariable); text != "" {
		if err := serveRounds(text); err != nil {
			fmt.Fprintln(os.Stderr, "rounds:", err)
			os.Exit(1)
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
