// Command fakellm serves package localstack/fakellm: an OpenAI-compatible inference
// server without a model, for tests, demonstrations and benchmarks. It prints its
// URL as the first line.
//
// With --restart it runs the server as a child process and starts it again on the
// same port when it dies. Standard output then has a JSON line for each death and
// start.
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

// run runs the command until ctx ends.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	server, err := fakellm.New(o.config)
	if err != nil {
		return err
	}
	if o.restart > 0 {
		command, err := thisProgram()
		if err != nil {
			return err
		}
		s := &supervisor{delay: o.restart, args: args, command: command, stdout: stdout, stderr: stderr}
		return s.run(ctx)
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
	return serve(ctx, server, o.listen, stdout)
}

// serve prints the URL and serves until ctx ends.
func serve(ctx context.Context, s http.Handler, listen string, stdout io.Writer) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", listen, err)
	}
	fmt.Fprintf(stdout, "http://%s\n", l.Addr())
	h := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = h.Close() }) // breaks answers in flight, as a kill does
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
