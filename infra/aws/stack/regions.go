package stack

import "slices"

// Regions where CloudFormation lacks a resource type of the stack, or where AWS's
// documentation says that the feature does not work. A test compares them with the types
// that cfn-lint knows of each region.
var (
	withoutFunctionURLs = []string{
		"ap-east-2", "ap-south-2", "ap-southeast-4", "ap-southeast-5", "ap-southeast-6", "ap-southeast-7",
		"ca-west-1", "cn-northwest-1", "eu-central-2", "eu-south-2", "il-central-1", "me-central-1", "mx-central-1",
		"us-gov-east-1", "us-gov-west-1",
	}
	withoutBudgets = []string{
		"af-south-1", "ap-east-1", "ap-east-2", "ap-northeast-3", "ap-south-2", "ap-southeast-3", "ap-southeast-4",
		"ap-southeast-5", "ap-southeast-6", "ap-southeast-7", "ca-west-1", "eu-central-2", "eu-north-1", "eu-south-1",
		"eu-south-2", "il-central-1", "me-central-1", "mx-central-1", "us-gov-east-1", "us-gov-west-1",
	}
)

// inRegion returns the settings without what the deployment's region lacks.
func (s Settings) inRegion() Settings {
	s.API = s.API && !slices.Contains(withoutFunctionURLs, s.Deployment.Cloud.Region)
	if slices.Contains(withoutBudgets, s.Deployment.Cloud.Region) {
		s.Budget = 0
	}
	return s
}

// Notes says what New leaves out although the settings ask for it, and what will not work,
// for the person who deploys.
func (s Settings) Notes() (notes []string) {
	region, made := s.Deployment.Cloud.Region, s.inRegion()
	if s.API && !made.API {
		notes = append(notes, "the API is left out: "+region+" has no function URLs. "+
			"The command line works without it")
	}
	if s.Budget > 0 && made.Budget == 0 {
		notes = append(notes, "the budget is left out: "+region+" has none in CloudFormation. "+
			"Make one for the account in the console, or in us-east-1")
	}
	return append(notes, s.unreachable()...)
}
