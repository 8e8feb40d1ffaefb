package fault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

func TestKindOf(t *testing.T) {
	t.Parallel()
	missing := New(NotFound, "no object %q", "a")
	for _, c := range []struct {
		name string
		err  error
		want Kind
	}{
		{"nil", nil, Internal},
		{"error without a kind", io.EOF, Internal},
		{"new", missing, NotFound},
		{"wrapped", Wrap(missing, "get %s", "a"), NotFound},
		{"wrapped by fmt", fmt.Errorf("get: %w", missing), NotFound},
		{"joined", errors.Join(io.EOF, missing), NotFound},
		{"outermost kind", WithKind(Corrupt, missing, "read the plan"), Corrupt},
		{"cause in New", New(Invalid, "line 7: %w", missing), Invalid},
		{"wrapped error without a kind", Wrap(io.EOF, "read"), Internal},
		{"canceled context", context.Canceled, Canceled},
		{"deadline of a context", fmt.Errorf("wait: %w", context.DeadlineExceeded), Canceled},
		{"wrapped canceled context", Wrap(context.Canceled, "wait"), Canceled},
		{"kind given to a context's error", WithKind(Unavailable, context.DeadlineExceeded, "ask the engine"), Unavailable},
	} {
		if got := KindOf(c.err); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		for k := Internal; k <= Canceled; k++ {
			if Is(c.err, k) != (c.err != nil && k == c.want) {
				t.Errorf("%s: Is(%s) is wrong", c.name, k)
			}
		}
	}
}

func TestNilIsNotAnError(t *testing.T) {
	t.Parallel()
	if Wrap(nil, "get") != nil || WithKind(Corrupt, nil, "get") != nil {
		t.Error("nil was turned into an error")
	}
	if Is(nil, Internal) || Retriable(nil) || ClassOf(nil) != "" || RetryAfter(nil) != 0 {
		t.Error("nil is treated as an error")
	}
}

func TestClassAndHintSurviveWrapping(t *testing.T) {
	t.Parallel()
	cause := &Error{Kind: Throttled, Class: Engine, Op: "ask", RetryAfter: time.Second}
	for _, c := range []struct {
		name string
		err  error
	}{
		{"the error itself", cause},
		{"wrapped", Wrap(Wrap(cause, "a"), "b")},
		{"wrapped by fmt", fmt.Errorf("a: %w", cause)},
		{"with another kind", WithKind(Unavailable, cause, "a")},
		{"wrapped with another kind", Wrap(WithKind(Unavailable, cause, "a"), "b")},
		{"in New", New(Unavailable, "a: %w", cause)},
	} {
		if ClassOf(c.err) != Engine || RetryAfter(c.err) != time.Second || !errors.Is(c.err, error(cause)) {
			t.Errorf("%s: class %q, hint %s", c.name, ClassOf(c.err), RetryAfter(c.err))
		}
	}
	other := &Error{Kind: Invalid, Class: InvalidLine, RetryAfter: time.Minute, Err: cause}
	if ClassOf(other) != InvalidLine || RetryAfter(other) != time.Minute {
		t.Errorf("not those of the outermost error: %q, %s", ClassOf(other), RetryAfter(other))
	}
	if ClassOf(io.EOF) != "" || ClassOf(New(Invalid, "x")) != "" {
		t.Error("an error without a class has one")
	}
}

func TestRetriable(t *testing.T) {
	t.Parallel()
	for k := Internal; k <= Canceled; k++ {
		if got := Retriable(New(k, "x")); got != (k == Throttled || k == Unavailable) {
			t.Errorf("%s: %v", k, got)
		}
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want string
	}{
		{New(NotFound, "no object %q", "a"), `no object "a"`},
		{Wrap(New(NotFound, "gone"), "get %s", "a"), "get a: gone"},
		{&Error{Kind: Denied, Op: "put a", Remedy: "free space"}, "put a (free space)"},
		{&Error{Kind: Denied, Op: "put a", Err: io.EOF, Remedy: "free space"}, "put a: EOF (free space)"},
		{&Error{Op: "put a", Err: &Error{Op: "open b", Remedy: "free space"}, Remedy: "try again"},
			"put a: open b (free space; try again)"},
		{&Error{Op: "put a", Err: errors.New("open b (no)"), Remedy: "try again"}, "put a: open b (no) (try again)"},
		{&Error{Kind: Denied}, "denied"},
		{&Error{Kind: 99}, "unknown"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestNames pins the names of kinds and classes: users see them, and files hold
// them.
func TestNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for k := Internal; k <= Canceled; k++ {
		if seen[k.String()] || k.String() == "unknown" {
			t.Errorf("kind %d has the name %s", k, k)
		}
		seen[k.String()] = true
	}
	want := "[invalid_line duplicate_id too_long refused engine poison timeout expired canceled budget storage " +
		"worker_lost input_changed diverged pruned result_error grade_error sandbox]"
	if got := fmt.Sprint(Classes); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestReadmesListEveryClass(t *testing.T) {
	t.Parallel()
	for path, row := range map[string]string{"../README.md": "\n| `%s` |", "../../examples/README.md": "%s"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, class := range Classes {
			if want := fmt.Sprintf(row, class); !strings.Contains(string(text), want) {
				t.Errorf("%s does not list the class %s", path, class)
			}
		}
	}
}
