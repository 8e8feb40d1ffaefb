package fakellm

import (
	"net/http"
	"time"
)

// The service model. With r running requests and a saturation of s, each step
// takes its configured time multiplied by
//
//	r ≤ s       1
//	s < r ≤ 2s  r/s: the server is at its limit
//	2s < r      r/s · r/2s: the KV cache is full, and requests preempt each other
//
// The throughput grows up to s, is constant up to 2s, then falls. The KV cache
// usage is r/2s.

// enter waits until the request may run, and counts it as running until leave is
// called. leave is nil if the client left first.
func (s *Server) enter(r *http.Request) (leave func()) {
	if s.slots != nil {
		s.waiting.Add(1)
		select {
		case s.slots <- struct{}{}:
			s.waiting.Add(-1)
		case <-r.Context().Done():
			s.waiting.Add(-1)
			return nil
		}
	}
	now := s.running.Add(1)
	for peak := s.peak.Load(); now > peak && !s.peak.CompareAndSwap(peak, now); {
		peak = s.peak.Load()
	}
	if s.cfg.Saturation > 0 && now > 2*int64(s.cfg.Saturation) {
		s.preempted.Add(1)
	}
	if s.cfg.OnRunning != nil {
		s.cfg.OnRunning()
	}
	return func() {
		s.running.Add(-1)
		if s.slots != nil {
			<-s.slots
		}
	}
}

// slowed returns how long a step of d takes under the current load.
func (s *Server) slowed(d time.Duration) time.Duration {
	sat, running := float64(s.cfg.Saturation), float64(s.running.Load())
	if sat == 0 || running <= sat {
		return d
	}
	factor := running / sat
	if running > 2*sat {
		factor *= running / (2 * sat)
	}
	return time.Duration(float64(d) * factor)
}

// cacheUsage is the share of the KV cache that the running requests use.
func (s *Server) cacheUsage() float64 {
	full := 2 * s.cfg.Saturation
	if full == 0 {
		full = s.cfg.MaxRunning
	}
	if full == 0 {
		return 0
	}
	return min(1, float64(s.running.Load())/float64(full))
}

// latency is the configured latency, varied by the spread and the digest.
func (s *Server) latency(digest [32]byte) time.Duration {
	unit := float64(digest[31])/127.5 - 1 // −1 to 1
	return time.Duration(float64(s.cfg.Latency) * (1 + s.cfg.Spread*unit))
}

// work waits for d, longer under load, and returns false if the client left
// first. Once the server is frozen it waits until the client leaves.
func (s *Server) work(r *http.Request, d time.Duration) bool {
	if s.cfg.Faults.FreezeAfter > 0 {
		select {
		case <-s.frozen:
			<-r.Context().Done()
			return false
		default:
		}
	}
	if d <= 0 {
		return true
	}
	t := time.NewTimer(s.slowed(d))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.frozen:
		<-r.Context().Done()
		return false
	case <-r.Context().Done():
		return false
	}
}

// health answers 200, after HealthDelay for each running request.
func (s *Server) health(_ http.ResponseWriter, r *http.Request) {
	t := time.NewTimer(s.cfg.Faults.HealthDelay * time.Duration(s.running.Load()))
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Context().Done():
	}
}
