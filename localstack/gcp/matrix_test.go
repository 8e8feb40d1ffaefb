package emulators

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"

	"rollout/localstack/gcp/fakefirestore"
	"rollout/localstack/gcp/fakegcs"
	"rollout/localstack/subprocess"
	"rollout/shared/blob"
	"rollout/shared/blob/blobtest"
	"rollout/shared/gcp"
	"rollout/shared/retry"
	"rollout/shared/secret"
	"rollout/shared/secret/secrettest"
	"rollout/shared/snapshot/snapshottest"
)

// The matrix of drivers and suites, against emulators in this process. fake-gcs-server
// keeps objects in memory, so that the test of memory use has an emulator in another
// process.
func TestInProcess(t *testing.T) {
	t.Parallel()
	t.Run("CloudStorage", func(t *testing.T) {
		t.Parallel()
		blobs(t, StartStorage(t, fakegcs.Options{}), blobtest.Features{KeepsVersions: true, InMemory: true})
	})
	t.Run("SecretManager", func(t *testing.T) {
		t.Parallel()
		secrettest.Run(t, func(t *testing.T, allow []string, set map[string]string) secret.Store {
			server := startSecrets(t)
			for name, text := range set {
				server.Set(emulated().Project, "p-"+name, []byte(text))
			}
			return openSecrets(t, server, emulated(), allow...)
		})
	})
	t.Run("Snapshots", func(t *testing.T) {
		t.Parallel()
		snapshots(t, StartStorage(t, fakegcs.Options{}), fakefirestore.Start(t, fakefirestore.Options{}))
	})
	t.Run("ComputeEngine", func(t *testing.T) { t.Parallel(); instances(t) })
}

// The first attempt of half of the requests is throttled, or performed and loses its
// reply, or breaks off. The suites pass all the same.
func TestInProcessUnderFaults(t *testing.T) {
	t.Parallel()
	t.Run("CloudStorage", func(t *testing.T) {
		t.Parallel()
		s := StartStorage(t, fakegcs.Options{Faults: fakegcs.NewFaults(7, 20, 20, 10)})
		blobs(t, s, blobtest.Features{KeepsVersions: true, InMemory: true})
	})
	t.Run("Snapshots", func(t *testing.T) {
		t.Parallel()
		snapshots(t, StartStorage(t, fakegcs.Options{Faults: fakegcs.NewFaults(7, 20, 20, 10)}),
			fakefirestore.Start(t, fakefirestore.Options{
				Faults: fakefirestore.Faults{Seed: 7, Aborted: 20, LostReplies: 30}}))
	})
}

// snapshots tests snapshots of trainings, whose archives are in Cloud Storage and whose
// documents are in Firestore.
func snapshots(t *testing.T, s Storage, f *fakefirestore.Server) {
	snapshottest.Run(t, func(t *testing.T) snapshottest.Stores {
		docs, err := gcp.NewDocuments(t.Context(), emulated(), gcp.DocumentOptions{
			Collection: fresh(), Listed: gcp.ListedDocuments(), Spread: 3, SDK: f.ClientOptions(),
		})
		if err != nil {
			t.Fatal(err)
		}
		return snapshottest.Stores{Blobs: blob.Reliable(s.Blobs(t), retry.Policy{}), Docs: docs}
	})
}

func TestInAnotherProcess(t *testing.T) {
	blobs(t, startStorageProcess(t), blobtest.Features{KeepsVersions: true})
}

func blobs(t *testing.T, s Storage, f blobtest.Features) {
	if s.Server != nil {
		t.Cleanup(func() {
			if got := s.Unconditional(); len(got) > 0 {
				t.Errorf("%d changes have no condition, such as %s: the SDK does not repeat them", len(got), got[0])
			}
		})
	}
	blobtest.Run(t, func(t *testing.T) blob.Store { return s.Blobs(t) }, f)
}

// startStorageProcess starts an emulator of Cloud Storage in a process of its own.
func startStorageProcess(t *testing.T) Storage {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := Storage{Bucket: "bucket-" + fresh()}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), storageVariable+"="+s.Bucket)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := subprocess.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close() // the process ends
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the emulator did not start: %v", err)
	}
	s.Address = strings.TrimSpace(line)
	return s
}
