package emulators

import (
	"flag"
	"fmt"
	"io"
	"os"
	"testing"

	"rollout/localstack/gcp/fakegcs"
	"rollout/localstack/subprocess"
)

// storageVariable, in the environment, makes this test program an emulator of Cloud
// Storage with a bucket of that name, which prints its address; see TestMain.
const storageVariable = "ROLLOUT_STORAGE_EMULATOR"

// TestMain runs the emulator if startStorageProcess started the process, or a program
// that reads a secret if runPrintSecret did. Else it runs the tests, with more of them in
// parallel, since they wait for services. Flags override the default.
func TestMain(m *testing.M) {
	if bucket := os.Getenv(storageVariable); bucket != "" {
		if err := serveStorage(bucket); err != nil {
			fmt.Fprintln(os.Stderr, "storage:", err)
			os.Exit(1)
		}
		return
	}
	if name := os.Getenv(secretVariable); name != "" {
		if err := printSecret(name); err != nil {
			fmt.Fprintln(os.Stderr, "secret:", err)
			os.Exit(1)
		}
		return
	}
	subprocess.EndWithGoTest()
	if err := flag.Set("test.parallel", "24"); err != nil {
		panic(err)
	}
	flag.Parse()
	os.Exit(m.Run())
}

// serveStorage is the process that startStorageProcess starts. It ends when its standard
// input does.
func serveStorage(bucket string) error {
	server, address, end, err := fakegcs.Start(fakegcs.Options{})
	if err != nil {
		return err
	}
	defer end()
	server.MakeBucket(bucket, true)
	fmt.Println(address)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
