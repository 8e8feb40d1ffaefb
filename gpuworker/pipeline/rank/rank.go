// Package rank is the process of one rank of the mesh: rank 0 starts this program again with a
// hidden argument. It reads its setup from standard input, joins the group, and runs stage 1.
// It ends when its standard input does, so that no rank outlives rank 0. Signals that a
// terminal sends to all processes are rank 0's to handle: it drains first.
package rank

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"rollout/gpuworker/pipeline/group"
	"rollout/gpuworker/pipeline/latent"
	"rollout/gpuworker/pipeline/stage1"
	"rollout/gpuworker/pipeline/text"
	"rollout/gpuworker/pipeline/wire"
	"rollout/gpuworker/tinylm/kernel"
	"rollout/gpuworker/tinylm/weights"
	"rollout/shared/core/pipeline"
	"rollout/shared/fault"
)

// argument starts a rank.
const argument = "pipeline-rank"

// Command returns the command that starts a rank of the program at the path.
func Command(program string) []string { return []string{program, argument} }

// Main runs a rank if the arguments of the program ask for one, and ends the process then.
// Otherwise it returns false. Programs that use Command call it first.
func Main(args []string) bool {
	if len(args) != 2 || args[1] != argument {
		return false
	}
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	if err := Run(context.Background(), os.Stdin, os.Stdout, os.Stderr, Hooks{}); err != nil {
		log := slog.New(slog.NewTextHandler(os.Stderr, nil))
		log.Error("rank of the pipeline ends", "pid", os.Getpid(), "error", err)
		os.Exit(1)
	}
	os.Exit(0)
	return true
}

// Hooks change a rank in tests. The zero value changes nothing.
type Hooks struct {
	Parity    func(own group.Parity)
	Generator func(g stage1.Generator, h group.Handles) stage1.Generator
	Reached   func(point string, ids pipeline.IDs)
}

// Run runs a rank until stage 0 ends the group or in ends, which returns nil, or something
// fails. Messages go to log.
func Run(ctx context.Context, in io.Reader, out, log io.Writer, hooks Hooks) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := bufio.NewReader(in)
	s, err := group.ReadSetup(lines)
	if err != nil {
		return err
	}
	level := slog.LevelInfo
	if s.Debug {
		level = slog.LevelDebug
	}
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: level}))
	contract, model, err := stageOf(s.Stage)
	if err != nil {
		return err
	}
	own := ParityOf(s, model)
	own[group.KeyCompile] = kernel.Best().String()
	own[group.KeyCompileMode] = runtime.GOOS + "/" + runtime.GOARCH + " " + runtime.Version()
	if hooks.Parity != nil {
		hooks.Parity(own)
	}
	h, err := group.Join(ctx, s, lines, out, contract, own)
	if err != nil {
		return err
	}
	var g stage1.Generator = latent.Generator{}
	if model != nil {
		if g, err = text.NewGenerator(model, h.Mesh); err != nil {
			h.Close()
			return err
		}
	}
	if hooks.Generator != nil {
		g = hooks.Generator(g, h)
	}
	go func() { // rank 0 has ended, or wants this rank to
		_, _ = io.Copy(io.Discard, lines)
		cancel()
	}()
	err = stage1.Run(ctx, stage1.Options{Handles: h, Contract: contract, Generator: g, Timeout: s.Timeout,
		Digest: s.Digest, Log: logger, Reached: hooks.Reached})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// stageOf returns the contract of a stage, and its model; nil without one.
func stageOf(name string) (wire.Contract, *weights.Bundle, error) {
	switch name {
	case wire.Text().Name:
		b, err := weights.Shipped()
		return wire.Text(), b, err
	case wire.Latent().Name:
		return wire.Latent(), nil, nil
	}
	return wire.Contract{}, nil, fault.New(fault.Invalid, "the stage %.40q: only text and latent exist", name)
}

// ParityOf returns the settings that rank 0 and the mesh must agree on. model is nil for a
// stage without one.
func ParityOf(s group.Setup, model *weights.Bundle) group.Parity {
	p := group.Parity{
		group.KeyEnabled: "true", group.KeyMeshSize: strconv.Itoa(s.Ranks - 1), group.KeyBackend: "tls",
		group.KeyTimeout: s.Timeout.Round(time.Millisecond).String(), group.KeyStage: s.Stage, group.KeyModel: "none",
		group.KeyInputDigest: "false", group.KeyOutputDigest: strconv.FormatBool(s.Digest), group.KeyFingerprint: "false",
		group.KeyRecompute: "envelope",
	}
	if model != nil {
		p[group.KeyModel] = model.Digest
	}
	return p
}
