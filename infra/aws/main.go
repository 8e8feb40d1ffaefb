// Command aws is the CDK app that deploys rollout to AWS: it reads the
// installation's config, which names everything, and synthesizes one stack.
package main

import (
	_ "embed"
	"fmt"
	"os"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"

	"rollout/infra/aws/stack"
)

// boot is how a machine of the fleet starts.
//
//go:embed bootstrap.sh
var boot string

func main() {
	defer jsii.Close()
	app := awscdk.NewApp(nil)
	settings, err := settings(app.Node())
	if err == nil {
		_, err = stack.New(app, settings)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	app.Synth(nil)
}
