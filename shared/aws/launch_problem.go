package aws

import (
	"strings"

	problems "rollout/shared/core/scaling"
)

// launchCodes are parts of what Auto Scaling says of a launch that failed, by their kind: codes
// of EC2, and words of messages that have no code.
var launchCodes = []struct {
	part string
	kind problems.ProblemKind
}{
	{"InsufficientInstanceCapacity", problems.Stockout},
	{"InsufficientHostCapacity", problems.Stockout},
	{"InsufficientReservedInstanceCapacity", problems.Stockout},
	{"UnfulfillableCapacity", problems.Stockout},
	{"SpotMaxPriceTooLow", problems.Stockout},
	{"do not have sufficient", problems.Stockout},
	{"no Spot capacity available", problems.Stockout},
	{"VcpuLimitExceeded", problems.Quota},
	{"MaxSpotInstanceCountExceeded", problems.Quota},
	{"InstanceLimitExceeded", problems.Quota},
	{"Max spot instance count exceeded", problems.Quota},
	{"vCPU capacity than your current vCPU limit", problems.Quota},
	{"UnauthorizedOperation", problems.Refused},
	{"not authorized to perform", problems.Refused},
	{"InvalidAMIID", problems.Unfit},
	{"InvalidParameter", problems.Unfit},
	{"InvalidSubnetID", problems.Unfit},
	{"InvalidGroup.NotFound", problems.Unfit},
	{"launch template", problems.Unfit},
	{"Unsupported", problems.Unfit},
}

// LaunchProblem returns the kind of cause that Auto Scaling's words name.
func LaunchProblem(message string) problems.ProblemKind {
	for _, c := range launchCodes {
		if strings.Contains(message, c.part) {
			return c.kind
		}
	}
	return problems.Unknown
}
