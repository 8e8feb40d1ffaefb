package doctor

import (
	"context"
	"slices"
	"time"

	"rollout/shared/capacity"
	"rollout/shared/cloud"
	"rollout/shared/fault"
	"rollout/shared/ownership"
	"rollout/shared/poolcheck"
)

// probe makes a check and returns what it found.
type probe = func(ctx context.Context) (found string, err error)

// Checks returns the checks of an installation in a cloud, made on the machine: those of
// the provider, those of what its machines fetch, and then those of the ports, in the order
// in which later ones need earlier ones.
func Checks(in cloud.Installation, machine capacity.Source, models poolcheck.Models) []Check {
	s, d := in.Stores(), in.Diagnostics(machine)
	var checks []Check
	for _, p := range d.Before {
		checks = append(checks, Check{Name: p.Name, Limit: p.Limit, Probe: p.Run})
	}
	if slices.ContainsFunc(s.Deployment.InferPools(), poolcheck.OfHub) {
		checks = append(checks, CheckModelAccess(models, s.Deployment, s.Secrets))
	}
	if len(imagesOf(s.Deployment)) > 0 {
		checks = append(checks, CheckEngineImages(s.Deployment, models.Client))
	}
	// Who may only look at runs lacks the rights of functions and machines. Nothing is wrong
	// with the installation for that.
	asFarAsAllowed := func(check string, p probe) probe {
		return func(ctx context.Context) (string, error) {
			found, err := p(ctx)
			if fault.Is(err, fault.Denied) {
				if lacking := d.Remedy(check, err); lacking != "" {
					err = &cloud.Unseen{Reason: "can't be seen with these rights: " + lacking}
				}
			}
			return found, err
		}
	}
	objects := asFarAsAllowed(cloud.CheckObjectStore, object(s.Ports.Blobs))
	checks = append(checks, []Check{
		{Name: cloud.CheckReachability, Limit: 10 * time.Second, Probe: d.Reach},
		{Name: cloud.CheckAuth, Limit: 15 * time.Second, Probe: d.Authenticate},
		{Name: cloud.CheckObjectStore, Limit: 20 * time.Second, Probe: ownObjects(ownership.OfCloud(in), objects)},
		{Name: cloud.CheckQueue, Limit: 20 * time.Second,
			Probe: asFarAsAllowed(cloud.CheckQueue, message(s.Ports.Queues))},
		{Name: cloud.CheckSecretStore, Limit: 15 * time.Second,
			Probe: asFarAsAllowed(cloud.CheckSecretStore, firstSecret(s.Secrets, s.Deployment.Secrets))},
		{Name: cloud.CheckComputeHint, Limit: 15 * time.Second, Probe: d.InspectMachine},
		{Name: cloud.CheckContentID, Limit: 3 * time.Minute,
			Probe: asFarAsAllowed(cloud.CheckContentID, contentID(s.Ports.Blobs, RoundTrip))},
	}...)
	for i, c := range checks {
		checks[i].Remedy = func(err error) string { return d.Remedy(c.Name, err) }
	}
	return checks
}
