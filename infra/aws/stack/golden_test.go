package stack_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/assertions"
	"github.com/aws/jsii-runtime-go"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"
	"github.com/google/go-cmp/cmp"

	"rollout/infra/aws/stack"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files in testdata")

// The stack follows AWS's recommendations, or its template says why not.
func TestSecurityChecksFindNothing(t *testing.T) {
	t.Parallel()
	s := settings(t)
	synthesis.Lock()
	defer synthesis.Unlock()
	a := app(t)
	made, err := stack.New(a, s)
	if err != nil {
		t.Fatal(err)
	}
	props := &cdknag.NagPackProps{Verbose: jsii.Bool(true), Reports: jsii.Bool(false)}
	awscdk.Aspects_Of(a).Add(cdknag.NewAwsSolutionsChecks(props), nil)
	found := assertions.Annotations_FromStack(made)
	errors := found.FindError(jsii.String("*"), assertions.Match_AnyValue())
	warnings := found.FindWarning(jsii.String("*"), assertions.Match_AnyValue())
	for _, m := range slices.Concat(*errors, *warnings) {
		t.Errorf("%s: %v", *m.Id, m.Entry.Data)
	}
}

// masked matches hashes of files. They change whenever a program changes.
var masked = regexp.MustCompile(`[0-9a-f]{64}`)

// The golden file has the whole template, so that each change of it is seen. An
// intended change is written with -rewrite.
func TestTemplateMatchesGoldenFile(t *testing.T) {
	t.Parallel()
	var made tree
	if err := json.Unmarshal(asUsual(t).text, &made); err != nil {
		t.Fatal(err)
	}
	for id := range asUsual(t).Resources {
		if data, ok := made.at("Resources." + id + ".Properties.LaunchTemplateData").(map[string]any); ok {
			data["UserData"] = "(the script)" // localstack/machine tests the script
		}
	}
	golden(t, "testdata/template.json", made)
}

// The stand-ins of localstack/aws enforce the rights to KMS keys as well. The golden file has
// what a stack with keys has in addition: the statements of its roles and policies, and what
// the keys encrypt.
func TestRightsToKeysMatchGoldenFile(t *testing.T) {
	t.Parallel()
	encrypted := map[string][]string{
		"AWS::DynamoDB::Table": {"TableName", "SSESpecification"},
		"AWS::S3::Bucket":      {"BucketName", "BucketEncryption"},
		"AWS::SQS::Queue":      {"QueueName", "KmsMasterKeyId"},
	}
	made, resources := synth(t, settings(t, withKeys)), map[string]any{}
	for id, r := range made.Resources {
		properties := map[string]any{}
		for _, name := range encrypted[r.Type] {
			properties[name] = r.Properties[name]
		}
		switch r.Type {
		case "AWS::IAM::ManagedPolicy":
			properties["PolicyDocument"] = toKeys(r.Properties)
		case "AWS::IAM::Role":
			var policies []any
			for _, p := range r.Properties.list("Policies") {
				policies = append(policies, map[string]any{"PolicyDocument": toKeys(p.(map[string]any))})
			}
			properties["Policies"] = policies
		}
		if len(properties) > 0 {
			resources[id] = map[string]any{"Type": r.Type, "Properties": properties}
		}
	}
	golden(t, "testdata/keys.json", map[string]any{"Resources": resources})
}

// toKeys returns the policy document of a resource with the statements on keys alone.
func toKeys(policy tree) map[string]any {
	var kept []any
	for _, s := range policy.list("PolicyDocument.Statement") {
		if strings.Contains(flat(s.(map[string]any)["Action"]), "kms:") {
			kept = append(kept, s)
		}
	}
	return map[string]any{"Statement": kept}
}

// golden compares a template with a file, or rewrites the file.
func golden(t *testing.T, file string, made map[string]any) {
	t.Helper()
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(made); err != nil {
		t.Fatal(err)
	}
	got := masked.ReplaceAllString(text.String(), "(hash)")
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
		t.Errorf("%s changed (-was +is); if that is intended, run go test ./stack -rewrite\n%s", file, diff)
	}
}

// tool returns the path of a program that scripts/infra/install.sh installs. If
// it is not installed, the test is skipped; in CI it fails.
func tool(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("ROLLOUT_INFRA")
	switch {
	case dir != "":
		return filepath.Join(dir, "bin", name)
	case os.Getenv("CI") == "true":
		t.Fatal("ROLLOUT_INFRA is not set: run make test-infra, which installs the tools and sets it")
	}
	t.Skip("SKIPPED: no " + name + ": run make test-infra, which installs it")
	return ""
}

// The cdk command synthesizes the template from the files in the repository,
// without a network, and CloudFormation's linter finds nothing in it.
func TestCDKSynthesizesOffline(t *testing.T) {
	t.Parallel()
	cdk, lint, out := tool(t, "cdk"), tool(t, "cfn-lint"), t.TempDir()
	functions, worker := programs(t)
	config, err := filepath.Abs("testdata/rollout.toml")
	if err != nil {
		t.Fatal(err)
	}
	const closedPort = "http://127.0.0.1:9"
	offline := []string{
		"HTTP_PROXY=" + closedPort, "HTTPS_PROXY=" + closedPort,
		"http_proxy=" + closedPort, "https_proxy=" + closedPort, "NO_PROXY=",
		"AWS_ACCESS_KEY_ID=", "AWS_PROFILE=", "AWS_EC2_METADATA_DISABLED=true",
		"CDK_DISABLE_CLI_TELEMETRY=true", "GOFLAGS=-mod=readonly", "GOPROXY=off",
	}
	run(t, offline, cdk, "synth", "--quiet", "--build", "true", "--output", out,
		"-c", "config="+config, "-c", "lambda="+functions, "-c", "worker="+worker)
	// W3005: the CDK writes dependencies that follow from others.
	run(t, nil, lint, "--ignore-checks", "W3005", "--regions", "eu-central-1", "--",
		filepath.Join(out, "acme.template.json"))
}

func TestShellcheckFindsNothingInBootstrapScript(t *testing.T) {
	t.Parallel()
	run(t, nil, tool(t, "shellcheck"), "--shell", "bash", "bootstrap.sh")
}

// run runs a command in infra/aws and fails the test if the command fails.
func run(t *testing.T, environment []string, command string, arguments ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command, arguments...)
	cmd.Dir, cmd.Env = "..", append(os.Environ(), environment...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", filepath.Base(command), err, out)
	}
}
