package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ModelName is the name that the servers serve the exported model as.
const ModelName = "rollout/tiny"

// Context is how many tokens a prompt and its answer may have together. It is more
// than the built-in model was made for, since servers put tools into the prompt.
const Context = 1024

// Server is one kind of inference server.
type Server struct {
	Name    string // in ROLLOUT_TEST_SERVER and in texts
	Install string // the command that installs it
	Format  string // of `rollout model export`, that it reads

	program string // relative to the repository's root
	// command is the program with its arguments.
	command func(program string, o Options) *exec.Cmd
	// engine reports whether a process of the server, by its command line, is the one
	// that computes. It is nil if the server is one process.
	engine func(commandLine string) bool
	// lacks names what the server needs and the machine does not have; "" if it has all.
	lacks func() string
}

// HasEngine reports whether another process than the one that answers computes.
func (s Server) HasEngine() bool { return s.engine != nil }

// ErrUnfit is the error of Check on a machine that the server cannot run on.
var ErrUnfit = errors.New("this machine cannot run the server")

// Check returns an error, with a remedy, if the server is not installed below the
// repository's root, and ErrUnfit if it cannot run on this machine.
func (s Server) Check(root string) error {
	if lacks := s.lacks(); lacks != "" {
		return fmt.Errorf("%w: %s needs %s", ErrUnfit, s.Name, lacks)
	}
	if _, err := os.Stat(filepath.Join(root, s.program)); err != nil {
		return fmt.Errorf("%s is not installed: run `%s`", s.Name, s.Install)
	}
	return nil
}

// Export writes the built-in model into folder, in the server's format, with the
// program rollout, and returns its path.
func (s Server) Export(ctx context.Context, rollout, folder string) (string, error) {
	path := filepath.Join(folder, "tiny."+s.Format)
	cmd := exec.CommandContext(ctx, rollout, "model", "export", "--format", s.Format, "--encoding", "f32", "--out", path)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("export the built-in model: %w: %s", err, out)
	}
	return path, nil
}
