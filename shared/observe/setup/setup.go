// Package setup opens the observability of a process besides its log, from its flags and
// from OpenTelemetry's environment variables: the event stream, and the export of spans
// to a file or an OpenTelemetry collector. Every program that runs functions or workers
// uses it, and passes the flags to the processes that it starts. Outputs that are not
// requested cost nothing.
//
// Tracing never delays work. Spans wait in a bounded queue and are dropped when it is
// full. A failing exporter loses spans; the log gets a warning at most once a minute. The
// package does not change OpenTelemetry's global state.
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
)

// Options select the outputs. The zero value selects none.
type Options struct {
	Events     bool   // write events to standard output
	EventsFile string // append events to this file
	TraceFile  string // append spans to this file
}

// AddFlags adds a flag for each option.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Events, "events", false, "write events to standard output, one JSON line per event")
	fs.StringVar(&o.TraceFile, "trace", "", "append the spans of runs to `file`, one line of OTLP JSON per span; "+
		"set OTEL_EXPORTER_OTLP_ENDPOINT to send them to a collector")
	fs.StringVar(&o.EventsFile, "events-file", "", "append events to `file`, one JSON line per event")
}

// Args returns the options as arguments of another process of the same installation. The
// processes share the files.
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

// Environment is what Open needs of the process.
type Environment struct {
	Stdout io.Writer
	Clock  clock.Clock
	Log    *slog.Logger
	Getenv func(string) string
	Name   string // of the process. Example: "rollout up"
}

// Open opens the selected outputs, and a collector that the environment names. The
// returned function exports the remaining spans, for at most a few seconds, and closes the
// files.
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
	t := traceOptions{endpoint: collectorURL(in), service: in.Name, log: in.Log}
	if o.TraceFile != "" {
		if t.file, err = open.file("--trace", o.TraceFile); err != nil {
			return w, nil, err
		}
	}
	tracer, endSpans, err := openTracer(ctx, t)
	if err != nil {
		return w, nil, err
	}
	w.Tracer, open = tracer, append(open, endSpans)
	return w, open.close, nil
}

// collectorURL returns the URL of the collector that OpenTelemetry's variables name, ""
// for none.
func collectorURL(in Environment) string {
	if in.Getenv("OTEL_SDK_DISABLED") == "true" || in.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return ""
	}
	at := in.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if base := in.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"); at == "" && base != "" {
		at = strings.TrimSuffix(base, "/") + "/v1/traces"
	}
	protocol := cmp.Or(in.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), in.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"))
	if at != "" && protocol == "grpc" {
		in.Log.Warn("cannot send spans over gRPC: set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "protocol", protocol)
		return ""
	}
	return at
}

// closers are functions that close calls in reverse order.
type closers []func() error

// file opens a file for appending, to which several processes write complete lines.
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
