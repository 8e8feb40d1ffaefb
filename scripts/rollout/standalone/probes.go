package standalone

import (
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/observe/probes"
)

// liveness is that of the workers in this process.
func (s *Runtime) liveness() *observe.Liveness {
	workers := 0
	if s.o.Workers == 0 {
		workers = len(s.o.Deployment.InferPools())
	}
	return observe.NewLiveness(s.ports.Clock, s.o.Deployment.Health.SelfFence.Std(), workers)
}

// probes are what the API tells of this process.
func (s *Runtime) probes() probes.Probes {
	v := probes.Probes{Ping: s.ports.Docs.Ping, Liveness: s.ports.Watch.Liveness}
	if m := s.o.Meter; m != nil {
		names := []string{host.CoordinateQueue, host.TaskQueue, host.PlanQueue}
		for _, p := range s.o.Deployment.InferPools() {
			names = append(names, host.WorkQueue(p.Name), host.UrgentQueue(p.Name))
		}
		m.TrackQueueDepths(s.ports.Queues, names...)
		v.Metrics = m.Handler()
	}
	return v
}
