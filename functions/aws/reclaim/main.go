// Command reclaim is package reclaim as a function of AWS Lambda, called every
// minute. It scales up the fleets of pools whose work waits, gives up machines that did not
// come for pools without work, and tells people what happened.
package main

import (
	"context"
	"errors"

	"rollout/functions/aws/internal/lambda"
	"rollout/functions/internal/autoscaler"
	"rollout/functions/notify"
	"rollout/functions/reclaim"
	"rollout/shared/aws"
	"rollout/shared/host"
	"rollout/shared/ownership"
)

func main() {
	lambda.Main("reclaim", func(s *aws.Stack) any {
		machines := autoscaler.ForInstallation(s, 0)
		notifier := notify.ForDeployment(s.Ports, s.Deployment, s.Secrets, s.EventBus())
		o := reclaim.ScheduleOptions{Timings: host.Timings(s.Deployment.Health), OnNeed: machines.Record, Notifier: notifier,
			BootPause:     s.Deployment.Cloud.Fleet.BootPause.Std(),
			LongestBoots:  s.Deployment.LongestBoots(),
			KeepDocuments: s.Deployment.Storage.KeepDocuments.Std(),
			Uploads: reclaim.UploadOptions{Bucket: s.Deployment.Bucket, Recent: true,
				CheckOwner: ownership.OfCloud(s).Check}}
		return lambda.Timer(func(ctx context.Context) error {
			err := reclaim.ScanOnce(ctx, s.Ports, o)
			if err != nil {
				machines.ScaleUp(ctx) // for the demand that the scan saw
			} else {
				machines.Settle(ctx)
			}
			return errors.Join(err, notifier.DeliverOnce(ctx)) // last: a receiver may take its time
		})
	})
}
