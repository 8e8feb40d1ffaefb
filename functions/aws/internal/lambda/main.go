package lambda

import (
	"context"
	"fmt"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"rollout/shared/aws"
)

// Main is the main of a function: it opens the stack, and lets Lambda call the
// handler that wire returns, until Lambda ends the process. The handler has a form
// that the package lambda of AWS accepts.
func Main(name string, wire func(*aws.Stack) (handler any)) {
	ctx := context.Background()
	s, err := Open(ctx, name, os.Getenv)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	lambda.StartWithOptions(wire(s), lambda.WithContext(ctx))
}
