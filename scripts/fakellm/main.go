// Command fakellm is an OpenAI-compatible inference server without a model, for
// tests, demonstrations and benchmarks. It prints its URL as the first line.
//
// With --restart it supervises itself: a server that died is started again on
// the same port, and standard output has a JSON line for each death and start.
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

	"rollout/localstack/fakellm"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "fakellm:", err)
		os.Exit(2)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	s, err := fakellm.New(o.config)
	if err != nil {
		return err
	}
	if o.restart > 0 {
		command, err := itself()
		if err != nil {
			return err
		}
		r := &supervisor{delay: o.restart, args: args, command: command, stdout: stdout, stderr: stderr}
		return r.run(ctx)
	}
	if o.attached {
		var end context.CancelFunc
		ctx, end = context.WithCancel(ctx)
		defer end()
		go func() {
			_, _ = io.Copy(io.Discard, stdin)
			end()
		}()
	}
	return serve(ctx, s, o.listen, stdout)
}

func serve(ctx context.Context, s http.Handler, listen string, stdout io.Writer) error {
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
