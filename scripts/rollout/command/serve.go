package command

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"rollout/gpuworker/cli"
	"rollout/gpuworker/engine/tiny"
	"rollout/gpuworker/serve"
	"rollout/gpuworker/tinylm/scheduler"
	"rollout/shared/config"
	"rollout/shared/embedded/machine"
	"rollout/shared/fault"
	"rollout/shared/listen"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	engine, addr, name string
	encryption         listen.TLS
	source             *modelSource
	threads            int
	batch              scheduler.Config
}

func serveCommand(e *Env) *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve the built-in model, or another tiny one, over the OpenAI HTTP API",
		Long: "Serves /v1/models, /v1/completions, /v1/chat/completions, /tokenize, /detokenize, /health, /version and\n" +
			"/metrics as vLLM does, for OpenAI clients and rollout workers.\n\n" +
			"To let other machines use it, set --addr to an address that they can reach, ROLLOUT_SECRET_API_TOKEN to the\n" +
			"token that their requests must carry, and --tls-cert and --tls-key to the server's certificate.",
		Args: arguments(0),
		RunE: func(c *cobra.Command, _ []string) error { return e.serve(c, f) },
	}
	f.source = modelFlags(c)
	f.source.chatFlag(c)
	fs := c.Flags()
	fs.StringVar(&f.engine, "engine", config.EngineTiny, "the `engine` to serve; only tiny runs in this process")
	cli.AddTLSFlags(fs, &f.encryption)
	fs.StringVar(&f.addr, "addr", "127.0.0.1:8000", "`address` to listen on; port 0 selects a free port")
	fs.StringVar(&f.name, "served-model-name", "", "`name` of the model in requests (default: its own name)")
	fs.IntVar(&f.threads, "threads", 0, "`number` of compute threads (default: one per core)")
	fs.IntVar(&f.batch.Slots, "max-num-seqs", 32, "`number` of requests processed at once; more wait")
	fs.IntVar(&f.batch.Queue, "max-waiting", 1024, "`number` of requests that may wait; more are refused with status 429")
	return c
}

func (e *Env) serve(c *cobra.Command, f serveFlags) (err error) {
	if f.engine != config.EngineTiny {
		return usage(c, "--engine %s cannot be served: use %s", f.engine, config.EngineTiny)
	}
	if f.batch.Slots < 1 || f.batch.Queue < 1 || f.threads < 0 {
		return usage(c, "--max-num-seqs and --max-waiting must be at least 1, --threads at least 0")
	}
	turns, err := f.source.chatTurns(c)
	if err != nil {
		return err
	}
	log, err := e.logger(slog.LevelInfo)
	if err != nil {
		return err
	}
	engine, err := e.openTiny(c, f, turns)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	secrets := machine.EnvSecrets([]string{listen.TokenSecret}, os.LookupEnv)
	l, token, err := listen.Open(c.Context(), f.addr, secrets, f.encryption)
	if err != nil {
		return fault.WithKind(fault.Invalid, err, "--addr")
	}
	seed := func() uint64 {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		return binary.LittleEndian.Uint64(b[:])
	}
	b := serve.Bounds()
	server := serve.New(serve.Config{Engine: engine, Version: version(), Clock: e.Clock, Log: log, Rand: seed})
	h := b.Guard(token, server, serve.PublicPaths()...)
	if _, err := fmt.Fprintf(e.Out, "%s/v1\n", listen.URL(l)); err != nil {
		return errors.Join(err, l.Close())
	}
	log.InfoContext(c.Context(), "serving",
		"model", engine.Name(), "revision", engine.Revision(), "context", engine.Context())
	return b.Serve(c.Context(), l, h)
}

// openTiny starts the engine. Unless GOMEMLIMIT is set, it removes the program's memory limit: that suits commands that
// stream, but the model must fit into memory.
func (e *Env) openTiny(c *cobra.Command, f serveFlags, turns bool) (*tiny.Engine, error) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(math.MaxInt64)
	}
	b, err := f.source.loadLanguageModel(c, e)
	if err != nil {
		return nil, err
	}
	return tiny.New(tiny.Config{
		Name:      cmp.Or(f.name, b.Name),
		Revision:  b.Digest,
		Model:     tiny.Decoder(b.Model, cmp.Or(f.threads, runtime.GOMAXPROCS(0))),
		Tokenizer: b.Tokenizer,
		ChatTurns: turns,
		Batch:     f.batch,
	})
}
