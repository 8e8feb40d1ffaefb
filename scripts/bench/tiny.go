package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"rollout/localstack/interop/llamacpp"
	"rollout/localstack/subprocess"
)

// tiny measures how fast the tiny engine's model samples, compared with llama.cpp
// on the same weights with one thread each, and how fast a small model is trained.
// Ratios are of CPU time, on which other processes have little effect.
func tiny(ctx context.Context, l *runner) error {
	file := l.program("tiny.gguf")
	if _, _, err := l.runSelf(ctx, "tiny-gguf", file); err != nil {
		return err
	}
	for _, streams := range []int{1, 32} {
		name := fmt.Sprintf("Tiny/streams=%d", streams)
		w, u, err := l.runSelf(ctx, "tiny-sample", "--streams", strconv.Itoa(streams))
		if err != nil {
			return err
		}
		l.report.add(name, "tokens/s", float64(w.Tokens)/w.Seconds)
		l.report.add(name, "tokens/core-s", float64(w.Tokens)/w.CPUSeconds)
		l.report.add(name, "peak-MiB", u.peakMiB)
		theirs, err := llamaPace(ctx, file, streams)
		if errors.Is(err, llamacpp.ErrNotInstalled) {
			l.note("the tiny engine was not compared with llama.cpp: %v", err)
			continue
		}
		if err != nil {
			return err
		}
		l.report.add(name, "llama.cpp-tokens/s", float64(theirs.Tokens)/theirs.Seconds)
		l.report.add(name, "×llama.cpp", float64(w.Tokens)/w.CPUSeconds/(float64(theirs.Tokens)/theirs.CPUSeconds))
	}
	w, u, err := l.runSelf(ctx, "tiny-answer", "--streams", "32")
	if err != nil {
		return err
	}
	l.report.add("Tiny/answers/streams=32", "tokens/s", float64(w.Tokens)/w.Seconds)
	l.report.add("Tiny/answers/streams=32", "tokens/core-s", float64(w.Tokens)/w.CPUSeconds)
	l.report.add("Tiny/answers/streams=32", "peak-MiB", u.peakMiB)
	if w, u, err = l.runSelf(ctx, "tiny-train", "--steps", "5"); err != nil {
		return err
	}
	l.report.add("Tiny/training", "tokens/core-s", float64(w.Tokens)/w.CPUSeconds)
	l.report.add("Tiny/training", "peak-MiB", u.peakMiB)
	if w, _, err = l.runSelf(ctx, "tiny-train", "--steps", "5", "--threads", strconv.Itoa(runtime.NumCPU())); err != nil {
		return err
	}
	l.report.add(fmt.Sprintf("Tiny/training/threads=%d", runtime.NumCPU()), "tokens/s", float64(w.Tokens)/w.Seconds)
	return nil
}

// runSelf runs this program with the arguments and reads the work that it prints.
func (l *runner) runSelf(ctx context.Context, args ...string) (w work, u usage, err error) {
	program, err := os.Executable()
	if err != nil {
		return w, u, err
	}
	cmd := exec.CommandContext(ctx, program, args...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	start := time.Now()
	if err := subprocess.Start(cmd); err != nil {
		return w, u, err
	}
	if u, err = finish(cmd, start, &stderr); err != nil || out.Len() == 0 {
		return w, u, err
	}
	return w, u, json.Unmarshal(out.Bytes(), &w)
}

// llamaPace is the same work with llama.cpp on one thread: the faster of its
// defaults and of plain float32 sums.
func llamaPace(ctx context.Context, file string, streams int) (best work, err error) {
	for _, fast := range []bool{true, false} {
		w, err := llamaWork(ctx, file, streams, fast)
		if err != nil {
			return w, err
		}
		if best.Tokens == 0 || float64(w.Tokens)/w.CPUSeconds > float64(best.Tokens)/best.CPUSeconds {
			best = w
		}
	}
	return best, nil
}

// llamaWork measures llama.cpp's sampling.
func llamaWork(ctx context.Context, file string, streams int, fast bool) (w work, err error) {
	b, err := tinyModel()
	if err != nil {
		return w, err
	}
	p, err := llamacpp.Start(ctx, file, llamacpp.Options{Root: ".", Threads: 1, Fast: fast})
	if err != nil {
		return w, err
	}
	n := b.Model.Config().Context - tinyPrompt
	for w.Seconds < tinySeconds {
		pace, err := p.MeasureThroughput(tinyTokens(tinyPrompt, b.Model.Config().Vocab), n, streams)
		if err != nil {
			return w, err
		}
		w.Tokens += n * streams
		w.Seconds += pace.Seconds
		w.CPUSeconds += pace.CPUSeconds
	}
	return w, p.Close()
}
