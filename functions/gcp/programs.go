package main

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"rollout/events"
	"rollout/functions/api"
	"rollout/functions/coordinate"
	"rollout/functions/finalize"
	"rollout/functions/gcp/internal/cloudrun"
	"rollout/functions/internal/autoscaler"
	"rollout/functions/interrupt"
	"rollout/functions/notify"
	"rollout/functions/openai"
	"rollout/functions/plan"
	"rollout/functions/reclaim"
	"rollout/functions/submit"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/gcp"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/listen"
	"rollout/shared/observe/probes"
	"rollout/shared/ownership"
	"rollout/shared/prices"
	"rollout/shared/queue"
)

// program returns the service of a function of an installation. It works until ctx
// ends.
type program = func(ctx context.Context, s *gcp.Stack) http.Handler

// programs returns the program of each function by its name.
func programs() map[string]program {
	return map[string]program{
		host.SubmitFunction:     serveSubmit,
		host.PlanFunction:       servePlan,
		host.CoordinateFunction: serveCoordinate,
		host.FinalizeFunction:   serveFinalize,
		host.ReclaimFunction:    serveReclaim,
		host.InterruptFunction:  serveInterrupt,
		host.APIFunction:        serveAPI,
		gcp.LeaveFunction:       serveLeave,
	}
}

// pushes returns the service of push subscriptions, which have the names of their
// topics.
func pushes(s *gcp.Stack, topics map[string]cloudrun.Handler) http.Handler {
	subscriptions := map[string]cloudrun.Handler{}
	for topic, handle := range topics {
		subscriptions[s.Deployment.Cloud.PubSub.Prefix+topic] = handle
	}
	return cloudrun.Pushes(s.Ports.Log, s.Deployment.Cloud.PubSub.PushAccount, subscriptions)
}

// serveSubmit serves the bucket's notifications of new objects, and the product's
// own events of objects, retries and batches. It refuses the objects of a bucket that another
// installation owns.
func serveSubmit(_ context.Context, s *gcp.Stack) http.Handler {
	at := gcp.ProfileOf(s.Deployment).Capabilities
	sub := submit.New(s.Ports, submit.Options{Deployment: s.Deployment, At: at})
	claim := ownership.OfCloud(s).ClaimOnce()
	uploaded := func(ctx context.Context, e events.ObjectCreated) error {
		if err := claim(ctx); err != nil {
			return err
		}
		return sub.Uploaded(ctx, e)
	}
	bucket := s.Deployment.Cloud.GCS
	return pushes(s, map[string]cloudrun.Handler{
		gcp.ObjectsTopic: cloudrun.Objects(s.Ports, cloudrun.Bucket{Name: bucket.Bucket, Prefix: bucket.Prefix}, uploaded),
		host.SubmitFunction: cloudrun.Tasks(s.Ports, func(ctx context.Context, p events.Payload) error {
			switch p := p.(type) {
			case events.ObjectCreated:
				return uploaded(ctx, p)
			case events.RetryRequested:
				return sub.Retry(ctx, p)
			case events.BatchRequested:
				return sub.Batch(ctx, p)
			}
			return fault.New(fault.Invalid, "event %T is not for submit", p)
		}),
	})
}

// servePlan serves runs to plan, and ranges of their inputs.
func servePlan(_ context.Context, s *gcp.Stack) http.Handler {
	planner := plan.New(s.Ports, plan.Options{Leases: true})
	return pushes(s, map[string]cloudrun.Handler{
		host.PlanFunction: cloudrun.Tasks(s.Ports, func(ctx context.Context, p events.Payload) error {
			switch p := p.(type) {
			case events.RunSubmitted:
				return planner.Submitted(ctx, p)
			case events.PlanRange:
				return planner.CutRange(ctx, p)
			}
			return fault.New(fault.Invalid, "event %T is not for plan", p)
		}),
	})
}

// mostSaves is how often a run's state may be saved in 10 seconds: Firestore takes
// about one write a second to a document.
const mostSaves = 10

// scaleUpTimeout bounds how long a step of coordinate waits for machines to be asked for.
const scaleUpTimeout = 10 * time.Second

// serveCoordinate serves the events of runs, those of a second in one step, and scales up
// the machines of the pools that it sent work to. The service must have one instance at
// most: others would only compete with it. For the same reason it does not clear effects,
// which would be a second write for each step.
func serveCoordinate(ctx context.Context, s *gcp.Stack) http.Handler {
	machines := autoscaler.ForInstallation(s, autoscaler.Cooldown)
	c := coordinate.New(s.Ports, input.NewIndex(s.Ports.Blobs, s.Ports.Docs), coordinate.Options{
		Timings:   host.Timings(s.Deployment.Health),
		Grace:     s.Deployment.Defaults.Limits.Grace.Std(),
		Hooks:     coordinate.Hooks{OnSent: machines.Record},
		MostSaves: mostSaves,
		Prices:    prices.Of(s.Deployment.Cloud.Provider),
		Pools:     append([]config.Pool{}, s.Deployment.Pools...), // not nil: a stack has no other queues
	})
	steps := cloudrun.Collect(ctx, cloudrun.CollectorOptions{}, func(ctx context.Context, ms []queue.Message) []string {
		done := c.HandleBatch(ctx, ms)
		limited, cancel := context.WithTimeout(ctx, scaleUpTimeout)
		defer cancel()
		machines.ScaleUp(limited)
		return done
	})
	return pushes(s, map[string]cloudrun.Handler{host.CoordinateQueue: steps.Handle})
}

// serveFinalize serves runs that end, and segments of their files.
func serveFinalize(_ context.Context, s *gcp.Stack) http.Handler {
	f := finalize.New(s.Ports, input.NewIndex(s.Ports.Blobs, s.Ports.Docs),
		finalize.Options{Segments: &finalize.SegmentOptions{}, Prices: s.Deployment})
	return pushes(s, map[string]cloudrun.Handler{
		host.FinalizeFunction: cloudrun.Tasks(s.Ports, func(ctx context.Context, p events.Payload) error {
			switch p := p.(type) {
			case events.Finalize:
				return f.Finalize(ctx, p)
			case events.FinalizeSegment:
				return f.WriteSegment(ctx, p)
			}
			return fault.New(fault.Invalid, "event %T is not for finalize", p)
		}),
	})
}

// serveReclaim serves the timer, every minute. It scales up the machines of pools whose
// work waits, withdraws requests for machines where none waits any more, and tells people what
// happened.
func serveReclaim(_ context.Context, s *gcp.Stack) http.Handler {
	machines := autoscaler.ForInstallation(s, 0)
	notifier := notify.ForDeployment(s.Ports, s.Deployment, s.Secrets, cloudrun.Logged(s.EventTopic(), s.Ports.Log))
	o := reclaim.ScheduleOptions{
		Timings: host.Timings(s.Deployment.Health),
		OnNeed:  machines.Record,
		Uploads: reclaim.UploadOptions{Bucket: s.Deployment.Bucket, Recent: true, CheckOwner: ownership.OfCloud(s).Check},

		Notifier:      notifier,
		KeepDocuments: s.Deployment.Storage.KeepDocuments.Std(),
		BootPause:     s.Deployment.Cloud.Fleet.BootPause.Std(),
		LongestBoots:  s.Deployment.LongestBoots(),
	}
	return cloudrun.Timer(s.Ports.Log, s.Deployment.Cloud.PubSub.PushAccount, func(ctx context.Context) error {
		err := reclaim.ScanOnce(ctx, s.Ports, o)
		if err == nil {
			machines.Settle(ctx)
		} else {
			machines.ScaleUp(ctx) // for the demand that the scan saw
		}
		return errors.Join(err, notifier.DeliverOnce(ctx)) // last: a receiver may take its time
	})
}

// serveInterrupt serves what the audit log says of machines.
func serveInterrupt(_ context.Context, s *gcp.Stack) http.Handler {
	i := interrupt.New(s.Ports, interrupt.Options{
		Deployment: s.Deployment,
		Hints:      gcp.ProfileOf(s.Deployment).Hints,
		FleetOf: func(_ context.Context, machine string) (string, error) {
			return "", fault.New(fault.NotFound, "the name of machine %s is not that of a member of a group", machine)
		},
	})
	handle := func(ctx context.Context, n cloud.MachineNotice) error {
		if pool, ok := gcp.PoolOfGroup(s.Deployment, n.Fleet); ok {
			n.Fleet = s.Deployment.Cloud.FleetName(pool) // a pool has a group for each series
		}
		return i.Handle(ctx, n)
	}
	return pushes(s, map[string]cloudrun.Handler{gcp.MachinesTopic: cloudrun.Notices(s.Ports, handle)})
}

// serveLeave serves the requests of machines to leave their groups.
func serveLeave(_ context.Context, s *gcp.Stack) http.Handler {
	tokens := cloudrun.NewMachineTokens(s.Deployment.Cloud)
	return cloudrun.Leave(s.Ports.Log, tokens, s.Machines().Remove)
}

// serveAPI serves the APIs of runs and of batches. If the config allows the secret api-token, requests must
// carry that token, and anyone may call the service. Otherwise the service must
// demand the role of an invoker, and requests without an identity token are refused
// here, too.
func serveAPI(_ context.Context, s *gcp.Stack) http.Handler {
	service := api.New(s.Ports, s.Deployment, gcp.ProfileOf(s.Deployment)).Throttled()
	batches := openai.New(s.Ports, s.Deployment, service).Chunked().Mount()
	v := probes.Probes{Ping: s.Ports.Docs.Ping}
	if slices.Contains(s.Deployment.Secrets, listen.TokenSecret) {
		return service.TokenHandler(s.Secrets, s.Ports.Log, v, batches)
	}
	return service.AuthenticatedHandler(cloudrun.IsAuthenticated, v, batches)
}
