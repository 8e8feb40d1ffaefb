package server_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rollout/gpuworker/engine/enginetest"
	"rollout/scripts/fakellm/server"
)

// BenchmarkRequests compares the client with a bare loop over net/http that
// reads the answer and does not look at it, against the server at 0 ms in the
// same process, 64 at once. The difference of cpu-µs/op is what the client
// costs; the rest is net/http's and the server's.
func BenchmarkRequests(b *testing.B) {
	const inFlight = 64
	_, url := start(b, server.Config{Tokens: 16})
	r := enginetest.ChatRequest(strings.Repeat("all work and no play ", 50))
	c := client(b, url, inFlight)
	bare := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: inFlight}}
	body := bytes.Replace(r.Body, []byte(`{`), []byte(`{"stream":true,"stream_options":{"include_usage":true},`), 1)

	for _, s := range []struct {
		name string
		ask  func() error
	}{
		{"bare", func() error {
			resp, err := bare.Post(url+"/v1/chat/completions", "application/json", bytes.NewReader(body))
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, resp.Body)
			return err
		}},
		{"client", func() error {
			_, err := c.Answer(b.Context(), r, func() {})
			return err
		}},
	} {
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			before := cpu(b)
			share(b, inFlight, s.ask)
			b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/1e3/float64(b.N), "cpu-µs/op")
		})
	}
}

// share makes b.N requests, so many at once.
func share(b *testing.B, inFlight int, ask func() error) {
	var wg sync.WaitGroup
	work := make(chan struct{}, inFlight)
	for range inFlight {
		wg.Go(func() {
			for range work {
				if err := ask(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	wg.Wait()
}

// cpu is the time that the process has used.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
