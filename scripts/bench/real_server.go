package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"rollout/localstack/servers"
	"rollout/scripts/bench/prompts"
)

// Settings of the comparison over real servers: chats of which the model computes so
// few tokens that what a server does for each request counts.
const (
	realInFlight = 64
	realTokens   = 40
	realRounds   = 3
	// A run takes about realRun, which the plain loop's pace over warmUp chats tells: in a
	// shorter one, the start of the product would count and not what each request takes.
	realRun = time.Minute
	warmUp  = 1000
)

// realCase is a server of the comparison.
type realCase struct {
	name   string // of its figures
	server servers.Server
	slots  int // requests that the server computes at once
}

func vllmCase() realCase {
	return realCase{name: "vLLM", server: servers.VLLM(), slots: 64}
}

func llamacppCase() realCase {
	return realCase{name: "llama.cpp", server: servers.LlamaCPP(), slots: 16}
}

// realServer compares runs over a real server that serves the built-in model: answers
// streamed and, as by default, whole, both with realInFlight requests at once; whole with
// the number that the product finds; and a plain loop that asks for whole answers. Each
// round takes all four, so that ratios are of figures from one time.
func realServer(ctx context.Context, l *runner, c realCase) error {
	if err := c.server.Check("."); err != nil {
		return err
	}
	folder, err := os.MkdirTemp(l.dir, "server-")
	if err != nil {
		return err
	}
	model, err := c.server.Export(ctx, l.program("rollout"), folder)
	if err != nil {
		return err
	}
	s, err := c.server.Run(servers.Options{Root: ".", Model: model, Slots: c.slots,
		Log: filepath.Join(folder, "server.log")})
	if err != nil {
		return err
	}
	return errors.Join(realRoundsOver(ctx, l, c, s), s.Close())
}

// realRoundsOver takes the rounds.
func realRoundsOver(ctx context.Context, l *runner, c realCase, s *servers.Running) error {
	ready, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.AwaitReady(ready); err != nil {
		return err
	}
	warm, err := realLoop(ctx, l, warmUp, s.URL)
	if err != nil {
		return err
	}
	chats := max(warmUp, int(warm*realRun.Seconds()))
	fixed := fmt.Sprintf("[worker]\nin_flight = %d\n", realInFlight)
	for range realRounds {
		streams, err := answerChats(ctx, l, chats, s.URL, fixed+"[engine]\nstream = \"always\"\n")
		if err != nil {
			return err
		}
		whole, err := answerChats(ctx, l, chats, s.URL, fixed)
		if err != nil {
			return err
		}
		found, err := answerChats(ctx, l, chats, s.URL, "")
		if err != nil {
			return err
		}
		loop, err := realLoop(ctx, l, chats, s.URL)
		if err != nil {
			return err
		}
		l.report.add(c.name+"/streams", "requests/s", streams)
		l.report.add(c.name+"/whole", "requests/s", whole)
		l.report.add(c.name+"/found", "requests/s", found)
		l.report.add(c.name+"/loop", "requests/s", loop)
		l.report.add(c.name+"/whole", "×streams", whole/streams)
		l.report.add(c.name+"/whole", "×loop", whole/loop)
		l.report.add(c.name+"/found", "×loop", found/loop)
	}
	return nil
}

// answerChats answers chats with the product, and returns the requests a second over
// the whole run.
func answerChats(ctx context.Context, l *runner, chats int, url, config string) (float64, error) {
	in, err := l.newFolder(chats, func(path string) error { return prompts.WriteChats(path, chats, realTokens) })
	if err != nil {
		return 0, err
	}
	err = os.WriteFile(filepath.Join(in.dir, "rollout.toml"), []byte("schema_version = 1\n"+config), 0o644)
	if err != nil {
		return 0, err
	}
	u, err := l.runOnce(ctx, in, "--engine", url)
	if err != nil {
		return 0, err
	}
	return pace(chats, u.wall), in.remove()
}

// realLoop posts chats with a plain loop, and returns the requests a second.
func realLoop(ctx context.Context, l *runner, chats int, url string) (float64, error) {
	in, err := l.newFolder(chats, func(path string) error { return prompts.WriteChats(path, chats, realTokens) })
	if err != nil {
		return 0, err
	}
	u, err := l.plainLoop(ctx, loopOptions{url: url + "/chat/completions", file: in.hidden, model: servers.ModelName,
		inFlight: realInFlight, whole: true})
	if err != nil {
		return 0, err
	}
	return pace(chats, u.wall), in.remove()
}

// pace is a number of requests a second.
func pace(n int, d time.Duration) float64 { return float64(n) / d.Seconds() }
