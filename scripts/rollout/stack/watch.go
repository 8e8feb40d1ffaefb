package stack

import (
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/observe/vitals"
)

// pulse is that of the workers in this process.
func (s *Stack) pulse() *observe.Pulse {
	workers := 0
	if s.o.Workers == 0 {
		workers = len(s.o.Deployment.Answering())
	}
	return observe.NewPulse(s.ports.Clock, s.o.Deployment.Health.SelfFence.Std(), workers)
}

// vitals are what the API tells of this process.
func (s *Stack) vitals() vitals.Vitals {
	v := vitals.Vitals{Ping: s.ports.Docs.Ping, Pulse: s.ports.Watch.Pulse}
	if m := s.o.Meter; m != nil {
		names := []string{host.CoordinateQueue, host.TaskQueue, host.PlanQueue}
		for _, p := range s.o.Deployment.Answering() {
			names = append(names, host.WorkQueue(p.Name), host.UrgentQueue(p.Name))
		}
		m.Depths(s.ports.Queues, names...)
		v.Metrics = m.Handler()
	}
	return v
}
