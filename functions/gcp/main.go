// Command gcp is all functions of rollout as services of Cloud Run: one program in
// one image, of which FUNCTION_TARGET names the function. ROLLOUT_CONFIG has the
// deployment's config, and PORT is where Cloud Run sends requests. LOCAL_ONLY=true
// keeps the service on this machine.
package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"
	"github.com/GoogleCloudPlatform/functions-framework-go/functions"

	"rollout/functions/gcp/internal/cloudrun"
	"rollout/shared/fault"
)

func main() {
	if err := serve(context.Background(), os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve serves the function that the environment names, until the process ends.
func serve(ctx context.Context, lookup func(string) string) error {
	name := lookup("FUNCTION_TARGET")
	wire, ok := programs()[name]
	if !ok {
		return &fault.Error{Kind: fault.Invalid,
			Err:    fault.New(fault.Invalid, "FUNCTION_TARGET is %q, which is not a function", name),
			Remedy: "set it to one of " + strings.Join(slices.Sorted(maps.Keys(programs())), ", ")}
	}
	s, err := cloudrun.Open(ctx, name, lookup)
	if err != nil {
		return err
	}
	functions.HTTP(name, wire(ctx, s).ServeHTTP)
	address := ""
	if lookup("LOCAL_ONLY") == "true" {
		address = "127.0.0.1"
	}
	err = funcframework.StartHostPort(address, cmp.Or(lookup("PORT"), "8080"))
	return fault.WithKind(fault.Unavailable, err, "serve the function %s", name)
}
