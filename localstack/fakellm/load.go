package fakellm

import (
	"net/http"
	"time"
)

// The service model. With r requests running and a saturation of s, everything
// takes
//
//	r ≤ s       as long as it is told
//	s < r ≤ 2s  r/s of it: the server works at its limit, more at once is only later
//	2s < r      r/s · r/2s of it: the KV cache is full, requests push each other out
//
// so that the throughput grows up to s, stays up to 2s, then falls. KV cache
// usage is r/2s.

// enter makes the request a running one, once there is room.
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

// slowed is how long something takes under the present load.
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

// cacheUsage is how much of the KV cache the running requests take.
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

// latency is the configured one, ± its spread by the request's digest.
func (s *Server) latency(digest [32]byte) time.Duration {
	unit := float64(digest[31])/127.5 - 1 // −1 to 1
	return time.Duration(float64(s.cfg.Latency) * (1 + s.cfg.Spread*unit))
}

// work takes time, more under load, and reports false if the client went away
// meanwhile. Once the server is frozen it never ends.
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

// health says yes, sooner or later.
func (s *Server) health(_ http.ResponseWriter, r *http.Request) {
	t := time.NewTimer(s.cfg.Faults.HealthDelay * time.Duration(s.running.Load()))
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Context().Done():
	}
}
