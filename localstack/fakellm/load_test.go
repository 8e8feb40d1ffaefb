package fakellm_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"rollout/localstack/fakellm"
)

// goodput is the number of answers a second that the clients get together. Each
// client sends its next request as soon as it has an answer.
func goodput(t *testing.T, cfg fakellm.Config, clients int) (perSecond float64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, cfg)
		const during = 5 * time.Second
		until := time.Now().Add(during)
		done := make(chan int)
		for c := range clients {
			go func() {
				n := 0
				for time.Now().Before(until) {
					post(t, s, "/v1/completions", fmt.Sprintf(`{"prompt":"%d of %d"}`, n, c))
					n++
				}
				done <- n
			}()
		}
		total := 0
		for range clients {
			total += <-done
		}
		perSecond = float64(total) / during.Seconds()
	})
	return perSecond
}

func TestThroughputPeaksAtTheSaturation(t *testing.T) {
	t.Parallel()
	cfg := fakellm.Config{Latency: 100 * time.Millisecond, Saturation: 16}
	best := goodput(t, cfg, 16)
	if best < 155 || best > 165 {
		t.Errorf("16 clients get %.1f answers a second, want 160", best)
	}
	for clients, share := range map[int][2]float64{4: {0.2, 0.3}, 8: {0.45, 0.55}, 24: {0.9, 1.1}, 32: {0.9, 1.1},
		64: {0.4, 0.6}} {
		if got := goodput(t, cfg, clients) / best; got < share[0] || got > share[1] {
			t.Errorf("%d clients get %.2f of the best, want %v", clients, got, share)
		}
	}
}

func TestMetricsShowSaturation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, fakellm.Config{Latency: time.Second, Saturation: 2, MaxRunning: 5})
		for n, want := range []string{"0.25", "0.5", "0.75", "1.0", "1.0", "1.0"} {
			go post(t, s, "/v1/completions", `{"prompt":"x"}`)
			synctest.Wait()
			if got := metric(t, s, "vllm:kv_cache_usage_perc"); got != want {
				t.Errorf("with %d requests the KV cache is used to %s, want %s", n+1, got, want)
			}
		}
		if got := metric(t, s, "vllm:num_preemptions_total"); got != "1.0" {
			t.Errorf("%s preemptions, want that of the fifth request", got)
		}
		if got := metric(t, s, "vllm:num_requests_waiting"); got != "1.0" {
			t.Errorf("%s waiting, want the sixth request", got)
		}
		time.Sleep(time.Minute)
	})
}
