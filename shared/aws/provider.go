package aws

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/smithy-go"

	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/host"
)

// Provider is Amazon Web Services as a cloud.Provider.
type Provider struct{}

var _ cloud.Provider = Provider{}

// Name is "aws"; see cloud.Provider.
func (Provider) Name() string { return config.ProviderAWS }

// Open opens a stack; see cloud.Provider.
func (Provider) Open(ctx context.Context, d config.Deployment, o cloud.Options) (cloud.Installation, error) {
	s, err := OpenStack(ctx, d, StackOptions{Options: o})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// IsServiceError reports whether err comes from an operation of the SDK; see
// cloud.Provider.
func (Provider) IsServiceError(err error) bool {
	var operation *smithy.OperationError
	return errors.As(err, &operation)
}

// Profile returns the capabilities and hints of a stack, on which Lambda and Auto
// Scaling start what is needed and each request to SQS is billed; see
// cloud.Provider.
func (Provider) Profile(d config.Deployment) cloud.Profile {
	logs := func(function string) string { return "/aws/lambda/" + d.Cloud.FunctionName(function) }
	return cloud.Profile{
		Capabilities: cloud.Capabilities{LongPoll: true, BilledQueues: true, ManagedFleet: true, DeclaredQueues: true,
			RemoteBucket: true},
		Hints: cloud.Hints{
			PickupTime: 30 * time.Second, // functions may have to start first
			Start: fmt.Sprintf("look at the functions' logs: `aws logs tail %s`, and `aws logs tail %s`",
				logs(host.PlanFunction), logs(host.CoordinateFunction)),
			Workers: func(pool string) string {
				return "wait some minutes for a machine, which needs a quota and capacity; " +
					"`aws autoscaling describe-scaling-activities --auto-scaling-group-name " + d.Cloud.FleetName(pool) +
					"` says why none starts"
			},
			Replacement: "other machines start while there is work",
			ConsoleOutput: func(machine string) string {
				return "aws ec2 get-console-output --latest --instance-id " + machine
			},
			PendingUpload: fmt.Sprintf("it is not a run yet: its event takes seconds, and one that was lost is sent again "+
				"within some two hours; if it stays, see why in the log of its function, `aws logs tail %s`, and put the file "+
				"there again",
				logs(host.SubmitFunction)),
		},
	}
}
