package deployed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"cloud.google.com/go/storage"

	"rollout/functions/reclaim"
	"rollout/localstack/subprocess"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/gcp"
	"rollout/shared/host"
	"rollout/shared/ownership"
)

// probeVariable, in the environment, makes this test program one that does one thing with
// the account of its environment, and fails if that is refused; see TestMain.
const probeVariable = "ROLLOUT_PROBE"

// probes are what the test program can do: by its name, and with an argument.
var probes = map[string]func(ctx context.Context, argument string) error{
	"scan":   scanLater,
	"fetch":  fetchObject,
	"mount":  listBucket,
	"secret": readSecret,
	"large":  putLarge,
	"raise":  scaleUp,
}

// runProbe does what the variable says.
func runProbe(what string) error {
	name, argument, _ := strings.Cut(what, " ")
	return probes[name](context.Background(), argument)
}

// probe runs a probe with an account.
func (f *fixture) probe(ctx context.Context, account, what string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return f.runAs(ctx, account, []string{probeVariable + "=" + what, "ROLLOUT_CONFIG=" + f.text}, self)
}

// rollout runs a command line of a person, in a folder with the config.
func (f *fixture) rollout(ctx context.Context, account string, arguments ...string) error {
	return f.runAs(ctx, account, nil, f.commandLine, append(arguments, "--cloud", "gcp")...)
}

// runAs runs a program with an account and more variables, in the folder with the config.
// The error of one that fails has what it wrote.
func (f *fixture) runAs(ctx context.Context, account string, more []string, path string, arguments ...string) error {
	environment, end, err := f.Environment(account)
	if err != nil {
		return err
	}
	defer end()
	cmd := exec.CommandContext(ctx, path, arguments...)
	cmd.Dir, cmd.Env = f.dir, append(append(environment, "PATH="+os.Getenv("PATH"), "TMPDIR="+os.TempDir()), more...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := subprocess.Run(cmd); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}

// open opens the installation of the environment's config.
func open(ctx context.Context, source string) (*gcp.Stack, error) {
	d, err := config.ParseDeployment("ROLLOUT_CONFIG", []byte(os.Getenv("ROLLOUT_CONFIG")))
	if err != nil {
		return nil, err
	}
	return gcp.OpenStack(ctx, d, gcp.StackOptions{Options: cloud.Options{Source: source}})
}

// scanLater makes the scan of reclaim as it is made in the first minute of an hour, later
// today: what was uploaded and sent before counts as lost. The sweep of orphans is that of tomorrow.
func scanLater(ctx context.Context, _ string) error {
	s, err := open(ctx, host.ReclaimFunction)
	if err != nil {
		return err
	}
	now := time.Now()
	later := now.Add(90 * time.Minute).Truncate(time.Hour).Sub(now)
	p := s.Ports
	p.Clock = clock.Skewed{Offset: later}
	check := ownership.OfCloud(s).Check
	err = reclaim.ScanOnce(ctx, p, reclaim.ScheduleOptions{Timings: host.Timings(s.Deployment.Health),
		Uploads: reclaim.UploadOptions{Bucket: s.Deployment.Bucket, Recent: true, CheckOwner: check}})
	p.Clock = clock.Skewed{Offset: 30 * time.Hour}
	return errors.Join(err, reclaim.SweepOrphans(ctx, p, reclaim.SweepOptions{CheckOwner: check}))
}

// scaleUp asks for machines, as functions do. The argument is POOL MACHINES.
func scaleUp(ctx context.Context, argument string) error {
	s, err := open(ctx, "probe")
	if err != nil {
		return err
	}
	var pool string
	var machines int
	if _, err := fmt.Sscan(argument, &pool, &machines); err != nil {
		return err
	}
	return s.Fleet().ScaleUp(ctx, pool, machines)
}

// fetchObject reads an object, as a machine fetches its programs. The argument is
// BUCKET/NAME.
func fetchObject(ctx context.Context, argument string) error {
	bucket, name, _ := strings.Cut(argument, "/")
	client, err := storage.NewClient(ctx)
	if err != nil {
		return err
	}
	r, err := client.Bucket(bucket).Object(name).NewReader(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // read only
	_, err = io.Copy(io.Discard, r)
	return err
}

// listBucket lists a bucket, as Cloud Run does that mounts it.
func listBucket(ctx context.Context, bucket string) error {
	client, err := storage.NewClient(ctx)
	if err != nil {
		return err
	}
	_, err = client.Bucket(bucket).Objects(ctx, nil).Next()
	return err
}

// putLarge puts an object of several chunks, which the driver makes by way of another one
// that it removes.
func putLarge(ctx context.Context, key string) error {
	s, err := open(ctx, "probe")
	if err != nil {
		return err
	}
	_, err = s.Ports.Blobs.Put(ctx, key, io.LimitReader(zeros{}, 17<<20), blob.PutOptions{})
	return err
}

// zeros is a reader of zeros without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// readSecret reads a secret of the allowlist.
func readSecret(ctx context.Context, name string) error {
	s, err := open(ctx, "probe")
	if err != nil {
		return err
	}
	v, err := s.Secrets.Get(ctx, name)
	if err == nil && v.Reveal() == "" {
		err = errors.New("the secret is empty")
	}
	return err
}
