package machine

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Sizes in bytes: the limit of the image's layer, compressed as it is stored and
// fetched, and the approximate size of the certificates in it.
const (
	mostLayer    = 40 << 20
	certificates = 250_000
)

// instructions returns the instructions of the Dockerfile.
func instructions(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

func TestImageHasOnlyTheWorkerAndAnUnprivilegedUser(t *testing.T) {
	t.Parallel()
	all := strings.Join(instructions(t), "\n")
	_, final, ok := strings.Cut(all, "\nFROM scratch\n")
	if !ok || strings.Contains(final, "FROM") || strings.Contains(final, "RUN") {
		t.Fatalf("the last stage does not start from scratch:\n%s", all)
	}
	if !regexp.MustCompile(`(?m)^USER [1-9][0-9]*:[1-9][0-9]*$`).MatchString(final) {
		t.Errorf("the user is root, or not numeric as an image without passwd needs:\n%s", final)
	}
	if !strings.Contains(final, `ENTRYPOINT ["/gpuworker"]`) {
		t.Errorf("the entry point is not the worker:\n%s", final)
	}
}

// The program is built with the Dockerfile's own command, so that the test measures
// the shipped program.
func TestImageLayerIsSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: short tests do not build the worker")
	}
	t.Parallel()
	const target = "/layer/gpuworker"
	var build string
	for _, i := range instructions(t) {
		if command, ok := strings.CutPrefix(i, "RUN "); ok && strings.Contains(command, target) &&
			strings.Contains(command, "go build") {
			build = command
		}
	}
	if build == "" {
		t.Fatal("the Dockerfile does not build " + target)
	}
	program := filepath.Join(t.TempDir(), "gpuworker")
	cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(build, target, program, 1))
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	size := layer(t, program) + certificates
	if info, err := os.Stat(program); err != nil || size > mostLayer {
		t.Errorf("the layer has %d bytes, want at most %d (%v)", size, mostLayer, err)
	} else {
		t.Logf("the layer has %d bytes, the program in it %d", size, info.Size())
	}
}

// layer is the compressed size of a layer with the file.
func layer(t *testing.T, file string) int64 {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // read only
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	var n counter
	packed := gzip.NewWriter(&n)
	archive := tar.NewWriter(packed)
	err = archive.WriteHeader(&tar.Header{Name: "gpuworker", Mode: 0o755, Size: info.Size()})
	if err == nil {
		_, err = io.Copy(archive, f)
	}
	if err == nil {
		err = archive.Close()
	}
	if err == nil {
		err = packed.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return int64(n)
}

// counter counts the bytes that are written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
