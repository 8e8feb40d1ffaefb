package fakellm_test

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
	"rollout/localstack/fakellm"
)

// BenchmarkRequests compares the client with a bare loop over net/http that reads
// the answer without parsing it, both against a server in the same process. The
// difference in cpu-µs/op is the cost of the client; the rest is that of
// net/http and the server.
func BenchmarkRequests(b *testing.B) {
	for _, load := range []struct {
		name     string
		latency  time.Duration
		inFlight int
	}{
		{"0 ms, 64 at once", 0, 64},
		{"20 ms, 256 at once", 20 * time.Millisecond, 256},
		{"0 ms, 512 at once", 0, 512},
	} {
		_, url := start(b, fakellm.Config{Latency: load.latency, Spread: 0.5})
		r := enginetest.ChatRequest(strings.Repeat("all work and no play ", 50))
		c := client(b, url, load.inFlight)
		bare := bareLoop(url+"/v1/chat/completions", r.Body, load.inFlight)
		answered := func() error {
			_, err := c.Answer(b.Context(), r, func() {})
			return err
		}
		for _, loop := range []struct {
			name string
			ask  func() error
		}{{"bare", bare}, {"client", answered}} {
			b.Run(load.name+"/"+loop.name, func(b *testing.B) {
				b.ReportAllocs()
				before := cpu(b)
				share(b, load.inFlight, loop.ask)
				b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/1e3/float64(b.N), "cpu-µs/op")
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
			})
		}
	}
}

// bareLoop returns a function that posts the request and reads the answer.
func bareLoop(url string, body []byte, inFlight int) func() error {
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: inFlight}}
	streamed := bytes.Replace(body, []byte(`{`), []byte(`{"stream":true,"stream_options":{"include_usage":true},`), 1)
	return func() error {
		resp, err := c.Post(url, "application/json", bytes.NewReader(streamed))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
}

// share sends b.N requests, inFlight of them at once.
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

// cpu is the CPU time that the process has used.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
