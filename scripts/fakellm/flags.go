package main

import (
	"flag"
	"fmt"
	"io"
	"time"

	"rollout/scripts/fakellm/server"
)

// options is the command line.
type options struct {
	config   server.Config
	listen   string
	restart  time.Duration // 0: serve in this process
	attached bool          // end when standard input does
}

// parse reads the command line.
func parse(args []string, stderr io.Writer) (o options, err error) {
	f := flag.NewFlagSet("fakellm", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.listen, "listen", "127.0.0.1:0", "`address` to listen on; port 0 picks a free one")
	f.DurationVar(&o.restart, "restart", 0, "when the server dies, start it again after so long, on the same port, and tell so in JSON lines")
	f.BoolVar(&o.attached, "attached", false, "end when standard input does")
	f.StringVar(&o.config.Model, "model", "fake", "served model's `name`")
	f.DurationVar(&o.config.Latency, "latency", 0, "time to the first piece of an answer, such as 20ms")
	f.DurationVar(&o.config.TokenLatency, "token-latency", 0, "time between pieces; 0 writes all at once")
	f.Float64Var(&o.config.Spread, "spread", 0, "0 to 1: each request's latency differs by up to so much of it")
	f.IntVar(&o.config.Tokens, "tokens", 0, "fill answers up to so many words")
	f.IntVar(&o.config.MaxRunning, "max-running", 0, "answer so many requests at once, queue the rest; 0 for no limit")
	faults(f, &o.config.Faults)
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.restart < 0 {
		return o, fmt.Errorf("a delay of %s before a restart is in the past", o.restart)
	}
	return o, nil
}

// faults adds the flags of what goes wrong.
func faults(f *flag.FlagSet, to *server.Faults) {
	f.IntVar(&to.ContextLimit, "context-limit", 0, "400 for prompts of more words")
	f.StringVar(&to.Refuse, "refuse", "", "400 for prompts with this `text`")
	f.StringVar(&to.Hang, "hang", "", "never answer prompts with this `text`")
	f.StringVar(&to.NoChoices, "no-choices", "", "answer {} to prompts with this `text`")
	f.StringVar(&to.Drop, "drop", "", "break the connection in mid-answer to prompts with this `text`")
	f.StringVar(&to.Die, "die", "", "exit when a prompt has this `text`")
	f.IntVar(&to.DieAfter, "die-after", 0, "exit at the first request after so many")
	f.IntVar(&to.OverloadEvery, "overload-every", 0, "429 or 503 for every n-th request")
	f.BoolVar(&to.ChatOnly, "chat-only", false, "serve no /v1/completions")
}
