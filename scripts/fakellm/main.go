// Command fakellm is an OpenAI-compatible inference server without a model, for
// tests, demonstrations and benchmarks. It prints its URL as the first line.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"rollout/scripts/fakellm/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "fakellm:", err)
		os.Exit(2)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cfg, listen, err := parse(args, stderr)
	if err != nil {
		return err
	}
	s, err := server.New(cfg)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", listen, err)
	}
	fmt.Fprintf(stdout, "http://%s\n", l.Addr())
	h := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = h.Close() }) // answers in flight break, as when a server is killed
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// parse reads the command line.
func parse(args []string, stderr io.Writer) (cfg server.Config, listen string, err error) {
	f := flag.NewFlagSet("fakellm", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&listen, "listen", "127.0.0.1:0", "`address` to listen on; port 0 picks a free one")
	f.StringVar(&cfg.Model, "model", "fake", "served model's `name`")
	f.DurationVar(&cfg.Latency, "latency", 0, "time to the first piece of an answer, such as 20ms")
	f.DurationVar(&cfg.TokenLatency, "token-latency", 0, "time between pieces; 0 writes all at once")
	f.Float64Var(&cfg.Spread, "spread", 0, "0 to 1: each request's latency differs by up to so much of it")
	f.IntVar(&cfg.Tokens, "tokens", 0, "fill answers up to so many words")
	f.IntVar(&cfg.MaxRunning, "max-running", 0, "answer so many requests at once, queue the rest; 0 for no limit")
	f.IntVar(&cfg.Faults.ContextLimit, "context-limit", 0, "400 for prompts of more words")
	f.StringVar(&cfg.Faults.Refuse, "refuse", "", "400 for prompts with this `text`")
	f.StringVar(&cfg.Faults.Hang, "hang", "", "never answer prompts with this `text`")
	f.StringVar(&cfg.Faults.NoChoices, "no-choices", "", "answer {} to prompts with this `text`")
	f.StringVar(&cfg.Faults.Drop, "drop", "", "break the connection in mid-answer to prompts with this `text`")
	f.StringVar(&cfg.Faults.Die, "die", "", "exit when a prompt has this `text`")
	f.IntVar(&cfg.Faults.OverloadEvery, "overload-every", 0, "429 or 503 for every n-th request")
	f.BoolVar(&cfg.Faults.ChatOnly, "chat-only", false, "serve no /v1/completions")
	if err := f.Parse(args); err != nil {
		return cfg, "", err
	}
	if f.NArg() > 0 {
		return cfg, "", fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return cfg, listen, nil
}
