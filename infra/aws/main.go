// Command aws is the CDK app that deploys rollout to AWS. It reads the
// installation's config and the values given with cdk's -c, and synthesizes one
// CloudFormation stack. It calls no AWS service: the cdk command deploys the
// stack.
package main

import (
	_ "embed"
	"fmt"
	"os"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"

	"rollout/infra/aws/stack"
)

// bootScript is the script that each machine of the fleet runs when it starts.
//
//go:embed bootstrap.sh
var bootScript string

func main() {
	defer jsii.Close()
	app := awscdk.NewApp(nil)
	s, err := readSettings(app.Node())
	if err == nil {
		_, err = stack.New(app, s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	app.Synth(nil)
}
