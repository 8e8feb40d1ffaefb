package lambda

import (
	"context"
	"fmt"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"rollout/shared/aws"
)

// Main is a function's main: it opens the stack, wires the function's handler
// and lets Lambda call it, until Lambda ends the process. wire returns a handler
// as package lambda takes it.
func Main(name string, wire func(*aws.Stack) (handler any)) {
	ctx := context.Background()
	s, err := Open(ctx, name, os.Getenv)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	lambda.StartWithOptions(wire(s), lambda.WithContext(ctx))
}
