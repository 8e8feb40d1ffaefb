package doctor

import (
	"time"

	"rollout/shared/capacity"
	"rollout/shared/cloud"
	"rollout/shared/ownership"
)

// Checks returns the checks of an installation in a cloud, made on the machine: those of
// the provider, and then those of the ports, in the order in which later ones need earlier
// ones.
func Checks(in cloud.Installation, machine capacity.Source) []Check {
	s, d := in.Stores(), in.Diagnostics(machine)
	var checks []Check
	for _, p := range d.Before {
		checks = append(checks, Check{Name: p.Name, Limit: p.Limit, Probe: p.Run})
	}
	checks = append(checks, []Check{
		{Name: cloud.CheckReachability, Limit: 10 * time.Second, Probe: d.Reach},
		{Name: cloud.CheckAuth, Limit: 15 * time.Second, Probe: d.Authenticate},
		{Name: cloud.CheckObjectStore, Limit: 20 * time.Second, Probe: ownObjects(ownership.OfCloud(in))},
		{Name: cloud.CheckQueue, Limit: 20 * time.Second, Probe: message(s.Ports.Queues)},
		{Name: cloud.CheckSecretStore, Limit: 15 * time.Second, Probe: firstSecret(s.Secrets, s.Deployment.Secrets)},
		{Name: cloud.CheckComputeHint, Limit: 15 * time.Second, Probe: d.InspectMachine},
		{Name: cloud.CheckContentID, Limit: 3 * time.Minute, Probe: contentID(s.Ports.Blobs, RoundTrip)},
	}...)
	for i, c := range checks {
		checks[i].Remedy = func(err error) string { return d.Remedy(c.Name, err) }
	}
	return checks
}
