package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"rollout/localstack/clerk"
	"rollout/localstack/examinee"
	"rollout/localstack/fakellm"
)

// options is the command line.
type options struct {
	config   fakellm.Config
	listen   string
	restart  time.Duration // 0: serve in this process
	attached bool          // end with standard input
}

// parse parses the command line.
func parse(args []string, stderr io.Writer) (o options, err error) {
	f := flag.NewFlagSet("fakellm", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.listen, "listen", "127.0.0.1:0", "`address` to listen on; port 0 picks a free one")
	f.DurationVar(&o.restart, "restart", 0, "when the server dies, start it again on the same port after this "+
		"`delay`, and print JSON lines about it")
	f.BoolVar(&o.attached, "attached", false, "end when standard input is closed")
	f.StringVar(&o.config.Model, "model", "fake", "`name` of the served model")
	f.DurationVar(&o.config.Latency, "latency", 0, "`time` to the first piece of an answer, such as 20ms")
	f.DurationVar(&o.config.TokenLatency, "token-latency", 0, "`time` between two pieces; 0 writes all at once")
	f.Float64Var(&o.config.Spread, "spread", 0, "`share`, 0 to 1, by which the latency of requests varies")
	f.IntVar(&o.config.Tokens, "tokens", 0, "least `number` of words of an answer")
	f.IntVar(&o.config.MaxRunning, "max-running", 0, "`number` of requests that run at once, others wait; 0 for no limit")
	f.IntVar(&o.config.Saturation, "saturation", 0, "`number` of requests at once from which they slow each other "+
		"down; 0 for never")
	scripted := f.Bool("clerk", false, "answer the tickets of a rollout as a clerk does who knows the guidance alone")
	examined := f.Bool("examinee", false, "answer the questions of examples/trials.jsonl, wrongly by how they are asked")
	faults(f, &o.config.Faults)
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case *scripted && *examined:
		return o, errors.New("--clerk and --examinee are two models: name one of them")
	case *scripted:
		o.config.Script = clerk.Answer
	case *examined:
		o.config.Script = examinee.Answer
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.restart < 0 {
		return o, fmt.Errorf("the delay --restart=%s is negative", o.restart)
	}
	return o, nil
}

// faults adds the flags of faults.
func faults(f *flag.FlagSet, to *fakellm.Faults) {
	pattern := func(at *string, name, what string) { f.StringVar(at, name, "", what+" prompts with this `text`") }
	count := func(at *int, name, what string) { f.IntVar(at, name, 0, what) }
	count(&to.ContextLimit, "context-limit", "400 if the words of the prompt and max_tokens together exceed this `number`")
	f.BoolVar(&to.ContextExact, "context-exact", false, "report the prompt's length in such a 400, as older vLLM does")
	pattern(&to.Refuse, "refuse", "400 for")
	count(&to.OverloadEvery, "overload-every", "429 or 503 for every request whose number is a multiple of this `number`")
	f.DurationVar(&to.RetryAfter, "retry-after", time.Second, "`time` in the Retry-After of those")
	count(&to.MinuteLimit, "minute-limit", "429 for each request beyond this `number` within any minute")
	count(&to.MinuteTokens, "minute-tokens", "429 for each request beyond this `number` of tokens within any minute")
	f.BoolVar(&to.LimitHeaders, "limit-headers", false, "state both limits in the headers of answers, as OpenAI does")
	f.BoolVar(&to.RetryDate, "retry-date", false, "write Retry-After as a date")
	f.BoolVar(&to.ChatOnly, "chat-only", false, "do not serve /v1/completions")
	f.BoolVar(&to.NoMetrics, "no-metrics", false, "do not serve /metrics")

	pattern(&to.HangEarly, "hang-early", "send no headers and no answer for")
	pattern(&to.Hang, "hang", "send headers and no answer for")
	count(&to.FreezeAfter, "freeze-after", "after this `number` of requests, let all requests hang and stay healthy")
	f.DurationVar(&to.HealthDelay, "health-delay", 0, "`time` that /health takes for each running request")

	f.DurationVar(&to.GatewayTimeout, "gateway-timeout", 0, "504 for requests of which nothing has come for this `time`")

	pattern(&to.DropEarly, "drop-early", "break the connection before the headers for")
	pattern(&to.Drop, "drop", "break the connection in the middle of the answer to")
	pattern(&to.Die, "die", "exit at")
	count(&to.DieAfter, "die-after", "exit at the first request after this `number`")

	pattern(&to.Error, "error", "500 for")
	count(&to.ErrorAfter, "error-after", "500 for each request after this `number`")
	pattern(&to.Empty, "empty", "answer {} to")
	pattern(&to.NoChoices, "no-choices", "answer without choices to")
	pattern(&to.Echo, "echo", "answer with the request itself to")

	pattern(&to.BadLogprobs, "bad-logprobs", "write NaN and Infinity among logprobs for")
	pattern(&to.Surrogates, "surrogates", "write lone surrogates for")
	pattern(&to.Separators, "separators", "write U+2028, U+2029 and U+0085 for")
	pattern(&to.JSONSpaces, "json-spaces", "in JSON mode, answer white space up to max_tokens to")
	pattern(&to.JSONStuck, "json-stuck", "in JSON mode, answer the start of an object and white space to")
	count(&to.SpacesTimes, "spaces-times", "apply those two only to this `number` of requests of a prompt; 0 for all")
}
