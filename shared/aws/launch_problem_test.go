package aws

import (
	"testing"

	problems "rollout/shared/core/scaling"
)

func TestLaunchProblemIsNamedByAutoScalingsWords(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]problems.ProblemKind{
		"Could not launch Spot Instances. InsufficientInstanceCapacity - There is no Spot capacity available that " +
			"matches your request. Launching EC2 instance failed.": problems.Stockout,
		"We currently do not have sufficient g6.xlarge capacity in the Availability Zone you requested (us-east-1a). " +
			"Launching EC2 instance failed.": problems.Stockout,
		"Could not launch Spot Instances. MaxSpotInstanceCountExceeded - Max spot instance count exceeded. " +
			"Launching EC2 instance failed.": problems.Quota,
		"You have requested more vCPU capacity than your current vCPU limit of 0 allows for the instance bucket that " +
			"the specified instance type belongs to.": problems.Quota,
		"Access denied when attempting to assume role. You are not authorized to perform this operation.": problems.Refused,
		"The image id '[ami-0123]' does not exist. InvalidAMIID.NotFound":                                 problems.Unfit,
		"Launching a new EC2 instance. Status Reason: something new":                                      problems.Unknown,
		"": problems.Unknown,
	} {
		if got := LaunchProblem(message); got != want {
			t.Errorf("%q is %s, want %s", message, got, want)
		}
	}
}
