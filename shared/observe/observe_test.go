package observe_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"rollout/shared/fault"
	"rollout/shared/observe"
)

func TestLooksSecret(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		"api_key": true, "apiKey": true, "API-KEY": true, "hf_token": true, "hfToken": true, "Authorization": true,
		"engine.secret": true, "db_password": true, "set-cookie": true, "aws_secret_access_key": true,
		"key": false, "tokens": false, "max_tokens": false, "prompt_tokens": false, "tokenizer": false,
		"secretary": false, "config_key": false, "": false,
	} {
		if got := observe.LooksSecret(key); got != want {
			t.Errorf("LooksSecret(%q) = %v, want %v", key, got, want)
		}
	}
}

func TestLoggersNeverWriteSecrets(t *testing.T) {
	t.Parallel()
	for _, format := range []observe.Format{observe.Text, observe.JSON} {
		var out bytes.Buffer
		log := observe.NewLogger(&out, format, slog.LevelInfo)
		log.With("api_key", "s3cr3t").Info("with")
		log.Info("attr", "token", "s3cr3t", "nested", slog.GroupValue(slog.String("password", "s3cr3t")))
		log.WithGroup("request").Info("group", "authorization", []byte("s3cr3t"), "user", "ann", "token_count", 7)
		if strings.Contains(out.String(), "s3cr3t") || strings.Contains(out.String(), "czNjcjN0") {
			t.Errorf("%s: the log has a secret:\n%s", format, &out)
		}
		for _, kept := range []string{"ann", "7", observe.Redacted} {
			if !strings.Contains(out.String(), kept) {
				t.Errorf("%s: %q is missing:\n%s", format, kept, &out)
			}
		}
	}
}

func TestLoggerOmitsLinesBelowItsLevel(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := observe.NewLogger(&out, observe.Text, slog.LevelWarn)
	log.Info("quiet")
	log.Warn("loud")
	if got := out.String(); strings.Contains(got, "quiet") || !strings.Contains(got, "loud") {
		t.Errorf("got %q", got)
	}
}

func TestParseRefusesUnknownNamesWithRemedy(t *testing.T) {
	t.Parallel()
	_, err := observe.ParseLevel("chatty")
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "debug, info, warn or error") {
		t.Errorf("ParseLevel: %v", err)
	}
	_, err = observe.ParseFormat("xml")
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "text or json") {
		t.Errorf("ParseFormat: %v", err)
	}
	if l, err := observe.ParseLevel("WARN"); l != slog.LevelWarn || err != nil {
		t.Errorf("ParseLevel(WARN) = %v, %v", l, err)
	}
}
