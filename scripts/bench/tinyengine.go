package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"rollout/gpuworker/engine"
	tinyengine "rollout/gpuworker/engine/tiny"
)

// tinyAnswers asks the tiny engine, requests side by side, until each stream
// has had some answers: reading of requests, scheduling and sampling with
// temperature and top_p are in it.
func tinyAnswers(ctx context.Context, streams, threads int) (w work, err error) {
	b, err := tinyModel()
	if err != nil {
		return w, err
	}
	e, err := tinyengine.New(tinyengine.Config{Name: b.Name, Model: tinyengine.Decoder(b.Model, threads), Tokenizer: b.Tokenizer})
	if err != nil {
		return w, err
	}
	const answers = 2 // of each stream
	err = w.timed(func() (int, error) {
		var tokens atomic.Int64
		errs := make([]error, streams)
		var wait sync.WaitGroup
		for s := range streams {
			wait.Go(func() {
				for i := range answers {
					body := fmt.Sprintf(`{"prompt":"In the beginning","max_tokens":200,"ignore_eos":true,"temperature":1,"top_p":0.9,"seed":%d}`, s*answers+i)
					a, err := e.Answer(ctx, engine.Request{Endpoint: engine.Completion, Body: []byte(body)}, func() {})
					tokens.Add(a.Usage.CompletionTokens)
					errs[s] = errors.Join(errs[s], err)
				}
			})
		}
		wait.Wait()
		return int(tokens.Load()), errors.Join(errs...)
	})
	return w, errors.Join(err, e.Close())
}
