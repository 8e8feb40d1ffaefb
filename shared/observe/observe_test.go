package observe_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

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
			t.Errorf("%s: a secret is shown:\n%s", format, &out)
		}
		for _, kept := range []string{"ann", "7", observe.Redacted} {
			if !strings.Contains(out.String(), kept) {
				t.Errorf("%s: %q is missing:\n%s", format, kept, &out)
			}
		}
	}
}

func TestLoggerKeepsToItsLevel(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := observe.NewLogger(&out, observe.Text, slog.LevelWarn)
	log.Info("quiet")
	log.Warn("loud")
	if got := out.String(); strings.Contains(got, "quiet") || !strings.Contains(got, "loud") {
		t.Errorf("got %q", got)
	}
}

func TestParseRefusesUnknownNames(t *testing.T) {
	t.Parallel()
	if _, err := observe.ParseLevel("chatty"); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "debug, info, warn or error") {
		t.Errorf("ParseLevel: %v", err)
	}
	if _, err := observe.ParseFormat("xml"); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "text or json") {
		t.Errorf("ParseFormat: %v", err)
	}
	if l, err := observe.ParseLevel("WARN"); l != slog.LevelWarn || err != nil {
		t.Errorf("ParseLevel(WARN) = %v, %v", l, err)
	}
}

type fixedClock struct{}

func (fixedClock) Now() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 5e8, time.UTC) }

// flushed is a writer that tells what reached its reader.
type flushed struct {
	pending, seen bytes.Buffer
	err           error
}

func (f *flushed) Write(p []byte) (int, error) { return f.pending.Write(p) }
func (f *flushed) Flush() error {
	_, _ = f.pending.WriteTo(&f.seen)
	return f.err
}

func TestEmitterWritesOneFlushedLineAnEvent(t *testing.T) {
	t.Parallel()
	var w flushed
	e := observe.NewEmitter(&w, fixedClock{})
	e.Emit(t.Context(), "run_start", slog.String("run", "01J"), slog.Int("items", 3))
	want := `{"time":"2026-03-01T12:00:00.5Z","event":"run_start","run":"01J","items":3}` + "\n"
	if got := w.seen.String(); got != want {
		t.Errorf("after the first event a reader sees\n%s, want\n%s", got, want)
	}
	e.Emit(t.Context(), "note", slog.String("text", "two\nlines"), slog.String("token", "s3cr3t"))
	if got := w.seen.String(); strings.Count(got, "\n") != 2 || strings.Contains(got, "s3cr3t") {
		t.Errorf("after the second event a reader sees\n%s", got)
	}
	if err := e.Err(); err != nil {
		t.Error(err)
	}
}

func TestEmitterKeepsItsFirstFailure(t *testing.T) {
	t.Parallel()
	full := errors.New("disk full")
	w := flushed{err: full}
	e := observe.NewEmitter(&w, fixedClock{})
	e.Emit(t.Context(), "a")
	w.err = nil
	e.Emit(t.Context(), "b")
	if err := e.Err(); !errors.Is(err, full) || !strings.Contains(err.Error(), "event a") {
		t.Errorf("Err() = %v", err)
	}
	if strings.Contains(w.seen.String(), "event\":\"b") {
		t.Error("an event was written after a failure")
	}
}

func TestNilEmitterDoesNothing(t *testing.T) {
	t.Parallel()
	var e *observe.Emitter
	e.Emit(t.Context(), "run_start")
	if err := e.Err(); err != nil {
		t.Error(err)
	}
}
