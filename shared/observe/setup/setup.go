// Package setup turns the wishes of a command line, and of OpenTelemetry's
// variables, into what a process says about itself besides its log: the event
// stream, and spans.
//
// It is wiring, for every program that runs functions or workers: flags,
// files, and how a process that starts others passes the wishes on. What is
// not wished for costs nothing.
package setup

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"rollout/shared/clock"
	"rollout/shared/fault"
	"rollout/shared/observe"
	"rollout/shared/observe/tracing"
)

// Options are the wishes; the zero value is none.
type Options struct {
	Events     bool   // to standard output
	EventsFile string // to this file, at its end
	TraceFile  string // spans to this file, at its end
}

// AddFlags adds a flag for each wish.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Events, "events", false, "write what happens to standard output, a line of JSON an event")
	fs.StringVar(&o.TraceFile, "trace", "", "write the spans of runs to the end of `file`, a line of OTLP's JSON a span; OTEL_EXPORTER_OTLP_ENDPOINT sends them to a collector")
	fs.StringVar(&o.EventsFile, "events-file", "", "write what happens to the end of `file`, a line of JSON an event")
}

// Args are the wishes as arguments of another process of the same installation.
// Processes share the files.
func (o Options) Args() []string {
	var args []string
	if o.Events {
		args = append(args, "--events")
	}
	if o.EventsFile != "" {
		args = append(args, "--events-file", o.EventsFile)
	}
	if o.TraceFile != "" {
		args = append(args, "--trace", o.TraceFile)
	}
	return args
}

// Environment is what a process has to do it with.
type Environment struct {
	Stdout io.Writer
	Clock  clock.Clock
	Log    *slog.Logger
	Getenv func(string) string
	Name   string // of the process. Example: "rollout up"
}

// Open does as wished. The returned function ends it: what is under way is
// written, and files are closed.
func (o Options) Open(ctx context.Context, in Environment) (w observe.Observer, end func() error, err error) {
	if o.Events && o.EventsFile != "" {
		return w, nil, fault.New(fault.Invalid, "--events and --events-file exclude each other")
	}
	var open closers
	defer func() {
		if err != nil {
			err = errors.Join(err, open.close())
		}
	}()
	switch {
	case o.Events:
		w.Events = observe.NewEmitter(in.Stdout, in.Clock, in.Log)
	case o.EventsFile != "":
		f, err := open.file("--events-file", o.EventsFile)
		if err != nil {
			return w, nil, err
		}
		w.Events = observe.NewEmitter(f, in.Clock, in.Log)
	}
	t := tracing.Options{Endpoint: collector(in), Service: in.Name, Log: in.Log}
	if o.TraceFile != "" {
		if t.File, err = open.file("--trace", o.TraceFile); err != nil {
			return w, nil, err
		}
	}
	tracer, endSpans, err := tracing.Open(ctx, t)
	if err != nil {
		return w, nil, err
	}
	w.Tracer, open = tracer, append(open, endSpans)
	return w, open.close, nil
}

// collector is the URL at which OpenTelemetry's variables say that spans are
// taken; "" if they name none.
func collector(in Environment) string {
	if in.Getenv("OTEL_SDK_DISABLED") == "true" || in.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return ""
	}
	at := in.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if base := in.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"); at == "" && base != "" {
		at = strings.TrimSuffix(base, "/") + "/v1/traces"
	}
	protocol := cmp.Or(in.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), in.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"))
	if at != "" && protocol == "grpc" {
		in.Log.Warn("no spans are sent: rollout speaks OTLP over HTTP, not gRPC", "protocol", protocol)
		return ""
	}
	return at
}

// closers are to be called in reverse order.
type closers []func() error

// file opens a file that several processes write whole lines to.
func (cs *closers) file(flag, name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "%s", flag)
	}
	*cs = append(*cs, f.Close)
	return f, nil
}

func (cs closers) close() error {
	var err error
	for i := len(cs) - 1; i >= 0; i-- {
		err = errors.Join(err, cs[i]())
	}
	return err
}
