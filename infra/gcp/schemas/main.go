// Command schemas is a provider of Terraform that knows the arguments of Google Cloud's
// resources and calls no service, so that infra/gcp can be planned without a project and
// without network.
//
//	@cdktf/provider-google ──schemas.mjs──▶ schema.json ─┐
//	                                                     ├─▶ schemas ◀──plugin── tofu plan
//	data sources' answers (SCHEMAS_DATA) ────────────────┘
//
// Its plan leaves what Google Cloud computes unknown, and its apply makes that up; with
// SCHEMAS_KNOWN the plan makes it up already, so that a plan says which resource refers to
// which. It checks names and types of arguments, and not their values: the tests of infra/gcp
// check those. schema.json lies beside the program.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tfprotov5/tf5server"
)

// address is where Terraform's configuration finds the provider.
const address = "registry.opentofu.org/hashicorp/google"

const (
	dataVariable  = "SCHEMAS_DATA"  // names the file with the answers of data sources
	knownVariable = "SCHEMAS_KNOWN" // "true" lets a plan make up what is computed
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "schemas:", err)
		os.Exit(1)
	}
}

func serve() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	s := server{known: os.Getenv(knownVariable) == "true"}
	if s.schemas, err = readSchemas(filepath.Join(filepath.Dir(program), "schema.json")); err != nil {
		return err
	}
	if path := os.Getenv(dataVariable); path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, &s.answers); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
	}
	return tf5server.Serve(address, func() tfprotov5.ProviderServer { return &s })
}
