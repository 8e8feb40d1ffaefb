package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// tree is a copy of the working tree.
type tree struct{ root string }

// copyTree copies the files of the working tree that git does not ignore into a new
// folder.
func copyTree(ctx context.Context) (*tree, error) {
	list := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	names, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the files of the working tree: %w", err)
	}
	root, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return nil, err
	}
	t := &tree{root}
	for name := range bytes.SplitSeq(bytes.TrimSuffix(names, []byte{0}), []byte{0}) {
		if err := copyFile(filepath.Join(root, string(name)), string(name)); err != nil {
			t.remove()
			return nil, err
		}
	}
	return t, nil
}

// copyFile copies a file, with its mode. One that was deleted in the working tree is left
// out.
func copyFile(to, from string) error {
	in, err := os.Open(from)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func (t *tree) remove() { _ = os.RemoveAll(t.root) } // a temporary folder

// test applies the mutant, runs the tests over it until one fails, and takes the mutant
// back. A mutant that does not compile is an error.
func (t *tree) test(ctx context.Context, o options, m Mutant) (r Result, err error) {
	before, err := m.apply(t.root)
	defer func() {
		for path, text := range before {
			err = errors.Join(err, os.WriteFile(path, []byte(text), 0o644))
		}
	}()
	if err != nil {
		return r, err
	}
	began := time.Now()
	r = Result{Name: m.Name, Why: m.Why}
	if !o.units {
		if err := t.simulate(ctx, o, &r); err != nil {
			return r, err
		}
	}
	if r.KilledBy == "" && !o.simulation {
		if err := t.testUnits(ctx, o, m, &r); err != nil {
			return r, err
		}
	}
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

// simulate runs the simulation.
func (t *tree) simulate(ctx context.Context, o options, r *Result) error {
	const program = "mutant.test"
	if out, err := t.command(ctx, o, "", o.goCommand, "test", "-c", "-o", program, "./localstack/sim"); err != nil {
		return fmt.Errorf("it does not compile: %w\n%s", err, out)
	}
	defer os.Remove(filepath.Join(t.root, program))
	out, err := t.command(ctx, o, "localstack/sim", filepath.Join(t.root, program), "-test.run", "TestSimulation",
		"-seeds", fmt.Sprint(o.seeds))
	if err == nil {
		return nil
	}
	r.KilledBy, r.Detail = "simulation", firstLine(out, `seed \d+: .*|panic: .*|fatal error: .*`)
	return ctx.Err()
}

// testUnits runs the unit tests of the mutated packages.
func (t *tree) testUnits(ctx context.Context, o options, m Mutant, r *Result) error {
	args := append([]string{"test", "-failfast"}, m.Packages...)
	out, err := t.command(ctx, o, "", o.goCommand, args...)
	if err == nil {
		return nil
	}
	if bytes.Contains(out, []byte("[build failed]")) {
		return fmt.Errorf("its tests do not compile: %w\n%s", err, out)
	}
	r.KilledBy, r.Detail = "unit tests", firstLine(out, `--- FAIL: \S+|panic: .*`)
	return ctx.Err()
}

// command runs a command in a folder of the tree, for o.limit at most, on one core. It
// returns its output.
func (t *tree) command(ctx context.Context, o options, dir, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = filepath.Join(t.root, dir)
	c.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -trimpath"))
	c.WaitDelay = time.Second
	out, err := c.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("%w after %s", ctx.Err(), o.limit)
		out = fmt.Appendf(out, "\npanic: it takes longer than %s", o.limit)
	}
	return out, err
}

// firstLine returns the first match of the expression in the output, shortened.
func firstLine(out []byte, expression string) string {
	text := string(regexp.MustCompile(expression).Find(out))
	if most := 160; len(text) > most {
		text = text[:most] + "…"
	}
	return text
}
