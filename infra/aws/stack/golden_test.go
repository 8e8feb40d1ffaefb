package stack_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/assertions"
	"github.com/aws/aws-cdk-go/awscdk/v2/cxapi"
	"github.com/aws/jsii-runtime-go"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"
	"github.com/google/go-cmp/cmp"

	"rollout/infra/aws/stack"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/template.json anew")

// What AWS recommends is done, or the template says why not.
func TestTheSecurityChecksFindNothing(t *testing.T) {
	t.Parallel()
	s := settings(t)
	synthesis.Lock()
	defer synthesis.Unlock()
	a := app(t)
	made, err := stack.New(a, s)
	if err != nil {
		t.Fatal(err)
	}
	awscdk.Aspects_Of(a).Add(cdknag.NewAwsSolutionsChecks(&cdknag.NagPackProps{Verbose: jsii.Bool(true), Reports: jsii.Bool(false)}), nil)
	found := assertions.Annotations_FromStack(made)
	for _, list := range []*[]*cxapi.SynthesisMessage{found.FindError(jsii.String("*"), assertions.Match_AnyValue()), found.FindWarning(jsii.String("*"), assertions.Match_AnyValue())} {
		for _, m := range *list {
			t.Errorf("%s: %v", *m.Id, m.Entry.Data)
		}
	}
}

// masked are hashes of files, which change with every change of the product.
var masked = regexp.MustCompile(`[0-9a-f]{64}`)

// The whole template, for whoever changes it to see what that changes. A
// change that is meant is written with -rewrite.
func TestTheTemplateIsAsItWas(t *testing.T) {
	t.Parallel()
	var made tree
	if err := json.Unmarshal(asUsual(t).text, &made); err != nil {
		t.Fatal(err)
	}
	for id := range asUsual(t).Resources {
		if data, ok := made.at("Resources." + id + ".Properties.LaunchTemplateData").(map[string]any); ok {
			data["UserData"] = "(the script)" // its own tests are beside it
		}
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(made); err != nil {
		t.Fatal(err)
	}
	got := masked.ReplaceAllString(text.String(), "(hash)")
	const file = "testdata/template.json"
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the template changed (-was +is); if that is meant: go test ./stack -rewrite\n%s", diff)
	}
}

// tool is a program that scripts/infra/install.sh installs. Without it the test
// is skipped, which says so; in CI it fails.
func tool(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("ROLLOUT_INFRA")
	switch {
	case dir != "":
		return filepath.Join(dir, "bin", name)
	case os.Getenv("CI") == "true":
		t.Fatal("ROLLOUT_INFRA names no folder (make test-infra installs what this needs)")
	}
	t.Skip("SKIPPED: no " + name + ": run make test-infra, which installs it")
	return ""
}

// The CDK's own command makes the template without any network, from the
// files as a user has them; and CloudFormation's linter finds nothing in it.
func TestTheCommandLineSynthesizesOffline(t *testing.T) {
	t.Parallel()
	cdk, lint, out := tool(t, "cdk"), tool(t, "cfn-lint"), t.TempDir()
	functions, worker := programs(t)
	config, err := filepath.Abs("testdata/rollout.toml")
	if err != nil {
		t.Fatal(err)
	}
	const nobody = "http://127.0.0.1:9"
	run(t, []string{"HTTP_PROXY=" + nobody, "HTTPS_PROXY=" + nobody, "http_proxy=" + nobody, "https_proxy=" + nobody, "NO_PROXY=",
		"AWS_ACCESS_KEY_ID=", "AWS_PROFILE=", "AWS_EC2_METADATA_DISABLED=true", "CDK_DISABLE_CLI_TELEMETRY=true", "GOFLAGS=-mod=readonly", "GOPROXY=off"},
		cdk, "synth", "--quiet", "--build", "true", "--output", out, "-c", "config="+config, "-c", "lambda="+functions, "-c", "worker="+worker)
	// The CDK names dependencies that follow from others (W3005).
	run(t, nil, lint, "--ignore-checks", "W3005", "--regions", "eu-central-1", "--", filepath.Join(out, "acme.template.json"))
}

// A machine's first script runs where nobody looks.
func TestTheMachinesScriptIsSound(t *testing.T) {
	t.Parallel()
	run(t, nil, tool(t, "shellcheck"), "--shell", "bash", "bootstrap.sh")
}

func run(t *testing.T, environment []string, command string, arguments ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command, arguments...)
	cmd.Dir, cmd.Env = "..", append(os.Environ(), environment...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", filepath.Base(command), err, out)
	}
}
