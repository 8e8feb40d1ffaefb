package emulators

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"rollout/localstack/gcp/fakesecrets"
	"rollout/shared/clock"
	"rollout/shared/fault"
	"rollout/shared/gcp"
)

// startSecrets starts an emulator of Secret Manager in this process.
func startSecrets(t testing.TB) *fakesecrets.Server {
	t.Helper()
	server, end, err := fakesecrets.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	return server
}

// openSecrets returns the driver.
func openSecrets(t testing.TB, s *fakesecrets.Server, cfg gcp.Config, allow ...string) *gcp.Secrets {
	t.Helper()
	secrets, err := gcp.NewSecrets(t.Context(), cfg, allow, gcp.SecretOptions{Prefix: "p-", SDK: s.ClientOptions()})
	if err != nil {
		t.Fatal(err)
	}
	return secrets
}

func TestSecretThatCannotBeRead(t *testing.T) {
	t.Parallel()
	server := startSecrets(t)
	cfg := emulated()
	for name, prepare := range map[string]func(project, name string){
		"disabled": server.Disable, "damaged": server.Damage, "denied": server.Deny,
	} {
		server.Set(cfg.Project, "p-"+name, []byte("text"))
		prepare(cfg.Project, "p-"+name)
	}
	server.Set(cfg.Project, "p-binary", []byte{0xff})
	secrets := openSecrets(t, server, cfg, "disabled", "damaged", "denied", "binary", "unset")
	for name, c := range map[string]struct {
		kind   fault.Kind
		remedy string
	}{
		"unset":    {fault.NotFound, "gcloud secrets create p-unset"},
		"disabled": {fault.NotFound, "gcloud secrets versions add p-disabled"},
		"damaged":  {fault.Unavailable, ""},
		"denied":   {fault.Denied, ""},
		"binary":   {fault.Corrupt, ""},
	} {
		_, err := secrets.Get(t.Context(), name)
		if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.remedy) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want %s with %q", name, err, c.kind, c.remedy)
		}
	}
}

func TestSecretIsReadAfterServiceFailed(t *testing.T) {
	t.Parallel()
	server := startSecrets(t)
	server.Set(emulated().Project, "p-a", []byte("text"))
	server.Fail(codes.Unavailable, codes.ResourceExhausted)
	if v, err := openSecrets(t, server, emulated(), "a").Get(t.Context(), "a"); err != nil || v.Reveal() != "text" {
		t.Errorf("%q, %v", v.Reveal(), err)
	}
}

// The clock follows the date in the answers' headers.
func TestClockFollowsAnswers(t *testing.T) {
	t.Parallel()
	noon := clock.Fixed(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))
	server := startSecrets(t)
	cfg := emulated()
	cfg.Clock = gcp.NewClock(noon)
	server.Set(cfg.Project, "p-a", []byte("text"))
	secrets := openSecrets(t, server, cfg, "a")
	for _, c := range []struct{ ahead, want time.Duration }{
		{0, 0}, {2 * time.Second, 0}, {time.Hour, time.Hour}, {-time.Minute, -time.Minute}, {time.Second, 0},
	} {
		server.SetClock(func() time.Time { return noon.Now().Add(c.ahead) })
		if _, err := secrets.Get(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if got := cfg.Clock.Now().Sub(noon.Now()); got != c.want {
			t.Errorf("a service that is %s ahead: the clock is %s ahead, want %s", c.ahead, got, c.want)
		}
	}
	server.Fail(codes.InvalidArgument)
	server.SetClock(func() time.Time { return noon.Now().Add(time.Hour) })
	if _, err := secrets.Get(t.Context(), "a"); !fault.Is(err, fault.Invalid) {
		t.Fatal(err)
	}
	if got := cfg.Clock.Now().Sub(noon.Now()); got != time.Hour {
		t.Errorf("after an error the clock is %s ahead, want an hour", got)
	}
}
