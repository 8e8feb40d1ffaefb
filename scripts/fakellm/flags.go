package main

import (
	"flag"
	"fmt"
	"io"
	"time"

	"rollout/localstack/fakellm"
)

// options is the command line.
type options struct {
	config   fakellm.Config
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
	f.IntVar(&o.config.Saturation, "saturation", 0, "more requests at once than this slow each other down; 0 for never")
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
func faults(f *flag.FlagSet, to *fakellm.Faults) {
	pattern := func(at *string, name, what string) { f.StringVar(at, name, "", what+" prompts with this `text`") }
	count := func(at *int, name, what string) { f.IntVar(at, name, 0, what) }
	count(&to.ContextLimit, "context-limit", "400 if a prompt, in words, and max_tokens are together more")
	f.BoolVar(&to.ContextExact, "context-exact", false, "let such a 400 tell the prompt's length, as older vLLM does")
	pattern(&to.Refuse, "refuse", "400 for")
	count(&to.OverloadEvery, "overload-every", "429 or 503 for every n-th request")
	f.DurationVar(&to.RetryAfter, "retry-after", time.Second, "when to come back after those")
	f.BoolVar(&to.RetryDate, "retry-date", false, "tell that as a date")
	f.BoolVar(&to.ChatOnly, "chat-only", false, "serve no /v1/completions")

	pattern(&to.HangEarly, "hang-early", "send nothing, not even headers, for")
	pattern(&to.Hang, "hang", "never answer")
	count(&to.FreezeAfter, "freeze-after", "stop all answers for good at the first request after so many, but stay healthy")
	f.DurationVar(&to.HealthDelay, "health-delay", 0, "let /health take so long for each running request")

	pattern(&to.DropEarly, "drop-early", "break the connection before the headers for")
	pattern(&to.Drop, "drop", "break the connection in mid-answer to")
	pattern(&to.Die, "die", "exit at")
	count(&to.DieAfter, "die-after", "exit at the first request after so many")

	pattern(&to.Error, "error", "500 for")
	count(&to.ErrorAfter, "error-after", "500 for each request after so many")
	pattern(&to.Empty, "empty", "answer {} to")
	pattern(&to.NoChoices, "no-choices", "answer without choices to")
	pattern(&to.Echo, "echo", "answer with the request itself to")

	pattern(&to.BadLogprobs, "bad-logprobs", "write NaN and Infinity among logprobs for")
	pattern(&to.Surrogates, "surrogates", "write lone surrogates for")
	pattern(&to.Separators, "separators", "write U+2028, U+2029 and U+0085 for")
	pattern(&to.JSONSpaces, "json-spaces", "in JSON mode, answer white space up to max_tokens to")
	pattern(&to.JSONStuck, "json-stuck", "in JSON mode, begin an object and go on with white space for")
	count(&to.SpacesTimes, "spaces-times", "do those two for the first so many requests of a prompt only")
}
