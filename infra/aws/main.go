// Command aws is the CDK app that deploys rollout to AWS. It reads the
// installation's config and the values given with cdk's -c, and synthesizes one
// CloudFormation stack. It calls no AWS service: the cdk command deploys the
// stack. It asks the hub of models what the pools' models need of a GPU.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"

	"rollout/infra/aws/stack"
	"rollout/shared/poolcheck"
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
		for _, note := range s.Notes() {
			fmt.Fprintln(os.Stderr, "note:", note)
		}
		tellPools(s)
		_, err = stack.New(app, s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	app.Synth(nil)
}

// tellPools says which pools will not start to serve, and what can't be known of them.
// Only the model's hub is asked, and it may be unreachable: the stack is deployed
// nevertheless.
func tellPools(s stack.Settings) {
	if !s.Machines {
		return
	}
	poolcheck.Write(os.Stderr, poolcheck.FromEnvironment(os.Getenv).CheckAll(context.Background(), s.Deployment))
}
