package emulators

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"rollout/localstack/gcp/fakemetadata"
	"rollout/localstack/gcp/fakesecrets"
	"rollout/localstack/gcp/gateway"
	"rollout/localstack/subprocess"
	"rollout/shared/fault"
	"rollout/shared/gcp"
)

// secretVariable, in the environment, makes this test program one that prints the secret
// of that name, or the kind of the error; see TestMain.
const secretVariable = "ROLLOUT_PRINT_SECRET"

// printSecret is the process of runPrintSecret.
func printSecret(name string) error {
	ctx := context.Background()
	cfg, err := gcp.LoadConfig("test-project")
	if err != nil {
		return err
	}
	secrets, err := gcp.NewSecrets(ctx, cfg, []string{name}, gcp.SecretOptions{})
	if err != nil {
		return err
	}
	v, err := secrets.Get(ctx, name)
	if err != nil {
		fmt.Println(fault.KindOf(err), err)
		return nil
	}
	fmt.Println(v.Reveal())
	return nil
}

// runPrintSecret runs printSecret in a process with this environment alone.
func runPrintSecret(t *testing.T, environment ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append([]string{secretVariable + "=token", "HOME=" + t.TempDir()}, environment...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := subprocess.Run(cmd); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// A program has the credentials of the machine that it runs on, or those that a variable
// names. Its error tells what is missing.
func TestProgramFindsItsCredentials(t *testing.T) {
	t.Parallel()
	const host = "secretmanager.googleapis.com"
	way, end, err := gateway.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	certificate, err := way.Certificate(host)
	if err != nil {
		t.Fatal(err)
	}
	server, end, err := fakesecrets.Start(grpc.Creds(credentials.NewTLS(certificate)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	way.Lead(host, server.Address())
	server.Set("test-project", "token", []byte("the text"))
	_, metadata, end, err := fakemetadata.Start(machine, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)

	environment := append(way.Environment(), "GCE_METADATA_HOST="+metadata)
	if got := runPrintSecret(t, environment...); got != "the text\n" {
		t.Errorf("on an instance: %q", got)
	}
	if got := server.Authorizations(); len(got) != 1 || !strings.HasPrefix(got[0], "Bearer ya29.") {
		t.Errorf("the requests have the authorizations %q, want the instance's token", got)
	}

	damaged := filepath.Join(t.TempDir(), "key.json")
	if err := os.WriteFile(damaged, []byte(`{"type":"authorized_user"`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{"missing": "/no/such/file", "damaged": damaged} {
		got := runPrintSecret(t, append(way.Environment(), "GOOGLE_APPLICATION_CREDENTIALS="+file)...)
		if !strings.HasPrefix(got, "denied get secret") || !strings.Contains(got, "gcloud auth application-default login") {
			t.Errorf("a %s file: %q, want denied with a remedy", name, got)
		}
	}
	if got := way.Refused(); len(got) > 0 {
		t.Errorf("requests went to %q", got)
	}
}
