package lambdafn

import (
	"context"
	"fmt"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
)

// Main is a function's main: it opens the function, wires its handler and lets
// Lambda call it, until Lambda ends the process. wire returns a handler as
// package lambda takes it.
func Main(name string, wire func(context.Context, *Function) (handler any, err error)) {
	ctx := context.Background()
	f, err := Open(ctx, name, os.Getenv)
	if err == nil {
		var handler any
		if handler, err = wire(ctx, f); err == nil {
			lambda.StartWithOptions(handler, lambda.WithContext(ctx))
			return
		}
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	os.Exit(1)
}
