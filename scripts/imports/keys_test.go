package imports

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

func TestLogsSpellIdsOneWay(t *testing.T) {
	t.Parallel()
	breaches, err := Keys(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range breaches {
		t.Error(b)
	}
}

func TestKeysTellsGoodFromBad(t *testing.T) {
	t.Parallel()
	for call, want := range map[string]string{
		`log.Info("started", "run", r)`:                       "",
		`log.Info("started", "run_id", r)`:                    `"run_id" is spelled "run"`,
		`log.WarnContext(ctx, "lost", "shardIndex", n)`:       `"shardIndex" is spelled "shard"`,
		`log.ErrorContext(ctx, "it failed", "err", err)`:      `"err" is spelled "error"`,
		`slog.String("workerID", w)`:                          `"workerID" is spelled "worker"`,
		`slog.String("traceId", id)`:                          `"traceId" is spelled "trace_id"`,
		`log.With("server_url", u)`:                           `"server_url" is spelled "server"`,
		`s.complain(ctx, "not now", err, "queue_name", q)`:    `"queue_name" is spelled "queue"`,
		`log.Info("a run_id in a message", "shards", 3)`:      "",
		`log.Info("free keys are free", "bytes", 3)`:          "",
		`json.Unmarshal([]byte("{}"), &struct{ RunID int}{})`: "",
	} {
		tree := fstest.MapFS{"a/a.go": {Data: []byte("package a\nfunc f() {\n" + call + "\n}\n")}, "a/a_test.go": {Data: []byte(`package a; var _ = slog.String("err", "")`)}}
		got, err := Keys(tree)
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(got, "\n"); want == "" && text != "" || !strings.Contains(text, want) || want != "" && !strings.HasPrefix(text, "a/a.go:3: ") {
			t.Errorf("%s: got %q, want %q", call, text, want)
		}
	}
}
