// Package setup turns the wishes of a command line into what a process says
// about itself besides its log: the event stream.
//
// It is wiring, for every program that runs functions or workers: flags,
// files, and how a process that starts others passes the wishes on. What is
// not wished for costs nothing.
package setup

import (
	"errors"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/pflag"

	"rollout/shared/clock"
	"rollout/shared/fault"
	"rollout/shared/observe"
)

// Options are the wishes; the zero value is none.
type Options struct {
	Events     bool   // to standard output
	EventsFile string // to this file, at its end
}

// Flags adds a flag for each wish.
func (o *Options) Flags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Events, "events", false, "write what happens to standard output, a line of JSON an event")
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
	return args
}

// Open does as wished. The returned function ends it: what is under way is
// written, and files are closed.
func (o Options) Open(stdout io.Writer, c clock.Clock, log *slog.Logger) (observe.Watch, func() error, error) {
	var w observe.Watch
	var open closers
	if o.Events && o.EventsFile != "" {
		return w, nil, fault.New(fault.Invalid, "--events and --events-file exclude each other")
	}
	switch {
	case o.Events:
		w.Events = observe.NewEmitter(stdout, c, log)
	case o.EventsFile != "":
		f, err := appendTo(o.EventsFile)
		if err != nil {
			return w, nil, fault.As(fault.Invalid, err, "--events-file")
		}
		open = append(open, f.Close)
		w.Events = observe.NewEmitter(f, c, log)
	}
	return w, open.close, nil
}

// appendTo opens a file that several processes write whole lines to.
func appendTo(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
}

// closers are to be called in reverse order.
type closers []func() error

func (cs closers) close() error {
	var err error
	for i := len(cs) - 1; i >= 0; i-- {
		err = errors.Join(err, cs[i]())
	}
	return err
}
