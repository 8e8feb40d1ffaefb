package machine

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/shared/fault"
)

// call runs a command with a config and an input, and returns its output.
func call(t *testing.T, config, input string, args ...string) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rollout.toml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c := Command()
	c.SetArgs(append(args, "--config", path))
	c.SetIn(strings.NewReader(input))
	c.SetOut(&out)
	c.SetErr(&out)
	c.SilenceErrors, c.SilenceUsage = true, true
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

func TestCommandsAnswerTheBootScript(t *testing.T) {
	t.Parallel()
	const pool = head + "model = 'org/model'\nengine_args = ['--a b', '$(id)']\n"
	for name, c := range map[string]struct {
		input string
		args  []string
		want  string
	}{
		"the cause of an end": {"loading\nOSError: no such model\n", []string{"cause"}, "OSError: no such model\n"},
		"the context of a server": {`{"data":[{"max_model_len":4096}]}`, []string{"context", "--pool", "small"},
			"4096\n"},
		"the command inside an image": {"", []string{"command", "--pool", "small", "--port", "9000"},
			"python3\x00-m\x00vllm.entrypoints.openai.api_server\x00--model\x00org/model\x00--served-model-name\x00" +
				"org/model\x00--host\x00127.0.0.1\x00--port\x009000\x00--a b\x00$(id)\x00"},
	} {
		if got, err := call(t, pool, c.input, c.args...); err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
}

func TestCommandsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	const pool = head + "model = 'org/model'\n"
	for name, c := range map[string]struct {
		config, input string
		args          []string
		kind          fault.Kind
	}{
		"no such pool":        {pool, "", []string{"context", "--pool", "large"}, fault.Invalid},
		"a broken config":     {"[", "", []string{"context", "--pool", "small"}, fault.Invalid},
		"no context":          {pool, "{}", []string{"context", "--pool", "small"}, fault.NotFound},
		"no GPU as expected":  {pool, "No devices", []string{"units", "--pool", "small"}, fault.Invalid},
		"no GPU for a server": {pool, "", []string{"units", "--pool", "small"}, fault.Invalid},
	} {
		if _, err := call(t, c.config, c.input, c.args...); !fault.Is(err, c.kind) {
			t.Errorf("%s: %v, want %v", name, err, c.kind)
		}
	}
}
