package imports

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

func TestLogKeysHaveTheSpellingOfTheTable(t *testing.T) {
	t.Parallel()
	violations, err := CheckLogKeys(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range violations {
		t.Error(v)
	}
}

func TestCheckLogKeys(t *testing.T) {
	t.Parallel()
	for call, want := range map[string]string{
		`log.Info("started", "run", r)`:                       "",
		`log.Info("started", "run_id", r)`:                    `"run_id" is spelled "run"`,
		`log.WarnContext(ctx, "lost", "shardIndex", n)`:       `"shardIndex" is spelled "shard"`,
		`log.ErrorContext(ctx, "it failed", "err", err)`:      `"err" is spelled "error"`,
		`slog.String("workerID", w)`:                          `"workerID" is spelled "worker"`,
		`slog.String("traceId", id)`:                          `"traceId" is spelled "trace_id"`,
		`log.With("server_url", u)`:                           `"server_url" is spelled "server"`,
		`log.With("queue_name", q)`:                           `"queue_name" is spelled "queue"`,
		`log.Info("a run_id in a message", "shards", 3)`:      "",
		`log.Info("keys outside the table", "bytes", 3)`:      "",
		`json.Unmarshal([]byte("{}"), &struct{ RunID int}{})`: "",
	} {
		tree := fstest.MapFS{
			"a/a.go":      {Data: []byte("package a\nfunc f() {\n" + call + "\n}\n")},
			"a/a_test.go": {Data: []byte(`package a; var _ = slog.String("err", "")`)},
		}
		got, err := CheckLogKeys(tree)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(got, "\n")
		if want == "" && text != "" || want != "" && !strings.HasPrefix(text, "a/a.go:3: ") || !strings.Contains(text, want) {
			t.Errorf("%s: got %q, want %q", call, text, want)
		}
	}
}
