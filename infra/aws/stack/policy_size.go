package stack

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// maxPolicy is the largest managed policy that IAM accepts, in characters without white space.
const maxPolicy = 6144

// policyProblems returns which managed policies are too large for IAM, and what makes them
// smaller. CloudFormation would find out in the middle of a deployment. It calls no CDK.
func (s Settings) policyProblems() (problems []string) {
	for output, size := range s.policySizes() {
		if size > maxPolicy {
			problems = append(problems, fmt.Sprintf("%s would have %d characters, and IAM accepts %d in a managed policy: "+
				"use shorter names in [cloud.s3] and [cloud.dynamodb]; as ami of pools, use images, such as "+
				"ami-0123456789abcdef0, or the same SSM parameter for several pools", output, size, maxPolicy))
		}
	}
	slices.Sort(problems)
	return problems
}

// policySizes returns the characters of each managed policy, by the name of its output.
func (s Settings) policySizes() map[string]int {
	s = s.inRegion()
	b := &builder{
		Settings: s, cloud: s.Deployment.Cloud,
		partition: partitionOf(s.Deployment.Cloud.Region), account: "123456789012",
	}
	sizes := map[string]int{}
	for _, p := range b.userPolicies() {
		sizes[p.output] = documentSize(slices.Concat(p.grants, b.keyGrants(p.grants)))
	}
	return sizes
}

// partitionOf returns the partition of a region; for regions that are closed to the public,
// the longest.
func partitionOf(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "aws-cn"
	case strings.HasPrefix(region, "us-gov-"), strings.HasPrefix(region, "us-iso"):
		return "aws-us-gov"
	}
	return "aws"
}

// documentSize returns the characters of a policy document with the statements, as the CDK
// writes it.
func documentSize(grants []grant) int {
	type statement struct {
		Action    any
		Condition map[string]any `json:",omitempty"`
		Effect    string
		Resource  any
		Sid       string
	}
	var document struct {
		Statement []statement
		Version   string
	}
	document.Version = "2012-10-17"
	for _, g := range grants {
		document.Statement = append(document.Statement,
			statement{oneOrAll(g.actions), g.conditions, "Allow", oneOrAll(g.resources), g.id})
	}
	text, _ := json.Marshal(document) // it holds texts alone, which can be written
	return len(text)
}

// oneOrAll returns a list's only element, or the list.
func oneOrAll(list []string) any {
	if len(list) == 1 {
		return list[0]
	}
	return list
}
