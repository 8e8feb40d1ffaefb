package stack_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/assertions"
	"github.com/aws/jsii-runtime-go"

	"rollout/infra/aws/stack"
)

func TestMain(m *testing.M) {
	code := m.Run()
	jsii.Close() // here, because all tests share one Node process
	os.Exit(code)
}

// synthesis is held during calls to the CDK: the Node process serves one caller
// at a time.
var synthesis sync.Mutex

// usual is the template of testdata/rollout.toml, synthesized once for most tests.
var usual struct {
	sync.Once
	template
}

// asUsual returns the template of testdata/rollout.toml with settings unchanged.
func asUsual(t *testing.T) template {
	t.Helper()
	usual.Do(func() { usual.template = synth(t, settings(t)) })
	if usual.Resources == nil {
		t.Fatal("the template could not be synthesized: see the first test that failed")
	}
	return usual.template
}

// settings returns the settings of testdata/rollout.toml with machines, after the
// changes.
func settings(t *testing.T, changes ...func(*stack.Settings)) stack.Settings {
	t.Helper()
	src, err := os.ReadFile("testdata/rollout.toml")
	if err != nil {
		t.Fatal(err)
	}
	return read(t, string(src), changes...)
}

func read(t *testing.T, src string, changes ...func(*stack.Settings)) stack.Settings {
	t.Helper()
	d, text, err := stack.ReadConfig("rollout.toml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	boot, err := os.ReadFile("../bootstrap.sh")
	if err != nil {
		t.Fatal(err)
	}
	s := stack.Settings{
		Deployment: d,
		Config:     text,
		Bucket:     stack.Made,
		Table:      stack.Made,
		API:        true,
		Machines:   true,
		Arch:       stack.ArchARM,
		Zones:      2,
		Budget:     100,
		BootScript: string(boot),
	}
	s.FunctionsDir, s.WorkerBinary = programs(t)
	for _, change := range changes {
		change(&s)
	}
	return s
}

// programs writes placeholders for the functions' and the worker's programs. A
// template contains only the hashes of programs.
func programs(t *testing.T) (functions, worker string) {
	t.Helper()
	dir := t.TempDir()
	write := func(path string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(filepath.Base(filepath.Dir(path))), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"submit", "plan", "coordinate", "finalize", "reclaim", "interrupt", "api"} {
		write(filepath.Join(dir, "lambda", name, "bootstrap"))
	}
	write(filepath.Join(dir, "gpuworker"))
	return filepath.Join(dir, "lambda"), filepath.Join(dir, "gpuworker")
}

// app returns a new CDK app with the flags of cdk.json.
func app(t *testing.T) awscdk.App {
	t.Helper()
	src, err := os.ReadFile("../cdk.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Context map[string]any }
	if err := json.Unmarshal(src, &file); err != nil {
		t.Fatal(err)
	}
	return awscdk.NewApp(&awscdk.AppProps{Context: &file.Context, Outdir: jsii.String(t.TempDir())})
}

// synth synthesizes the template of the settings.
func synth(t *testing.T, s stack.Settings) template {
	t.Helper()
	synthesis.Lock()
	defer synthesis.Unlock()
	made, err := stack.New(app(t), s)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(assertions.Template_FromStack(made, nil).ToJSON())
	if err != nil {
		t.Fatal(err)
	}
	var out template
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	out.name, out.text = s.Deployment.Cloud.Name, text
	return out
}

// template is a template as CloudFormation gets it.
type template struct {
	name       string
	text       []byte
	Resources  map[string]resource
	Outputs    map[string]any
	Parameters map[string]any
}

type resource struct {
	id             string
	Type           string
	Properties     tree
	Metadata       tree
	DependsOn      any
	DeletionPolicy string
	// UpdateReplacePolicy says what becomes of a resource that an update replaces.
	UpdateReplacePolicy string
}

// tree is a JSON object whose values are found by paths.
type tree map[string]any

// at returns the value at a path such as "Code.S3Key", or nil.
func (t tree) at(path string) any {
	var x any = map[string]any(t)
	for name := range strings.SplitSeq(path, ".") {
		m, ok := x.(map[string]any)
		if !ok {
			return nil
		}
		x = m[name]
	}
	return x
}

// text returns the value at the path as text. It evaluates CloudFormation's
// functions as far as possible: references become <NAME> and <NAME.ATTRIBUTE>.
func (t tree) text(path string) string { return flat(t.at(path)) }

func (t tree) number(path string) float64 {
	n, _ := t.at(path).(float64)
	return n
}

// list returns the list at the path. A single value becomes a list of one.
func (t tree) list(path string) []any { return list(t.at(path)) }

func list(x any) []any {
	switch x := x.(type) {
	case nil:
		return nil
	case []any:
		return x
	}
	return []any{x}
}

func texts(x any) (out []string) {
	for _, e := range list(x) {
		out = append(out, flat(e))
	}
	return out
}

func flat(x any) string {
	switch x := x.(type) {
	case nil:
		return ""
	case string:
		return x
	case map[string]any:
		if ref, ok := x["Ref"].(string); ok {
			return "<" + ref + ">"
		}
		if get, ok := x["Fn::GetAtt"].([]any); ok && len(get) == 2 {
			return "<" + flat(get[0]) + "." + flat(get[1]) + ">"
		}
		if join, ok := x["Fn::Join"].([]any); ok && len(join) == 2 {
			return strings.Join(texts(join[1]), flat(join[0]))
		}
		if sub, ok := x["Fn::Sub"].(string); ok {
			return sub
		}
	}
	text, err := json.Marshal(x)
	if err != nil {
		return ""
	}
	return string(text)
}

// all returns the resources of a type.
func (t template) all(kind string) (out []resource) {
	for id, r := range t.Resources {
		if r.Type == kind {
			r.id = id
			out = append(out, r)
		}
	}
	return out
}

// one returns the only resource of a type.
func (t template) one(tt *testing.T, kind string) resource {
	tt.Helper()
	all := t.all(kind)
	if len(all) != 1 {
		tt.Fatalf("the template has %d resources of %s, want 1", len(all), kind)
	}
	return all[0]
}

// physical returns the resource of a type whose property has the name.
func (t template) physical(tt *testing.T, kind, property, name string) resource {
	tt.Helper()
	for _, r := range t.all(kind) {
		if r.Properties.text(property) == name {
			return r
		}
	}
	tt.Fatalf("the template has no %s with the %s %q", kind, property, name)
	return resource{}
}

// statement is a statement of a policy, and the resource of the policy.
type statement struct {
	of        resource
	id        string
	allow     bool
	actions   []string
	resources []string
	principal string
	condition tree
}

// policies returns the statements of all policies.
func (t template) policies() (out []statement) {
	for id, r := range t.Resources {
		r.id = id
		for _, path := range []string{"PolicyDocument.Statement", "AssumeRolePolicyDocument.Statement"} {
			out = append(out, statements(r, r.Properties.list(path))...)
		}
		for _, p := range r.Properties.list("Policies") {
			if m, ok := p.(map[string]any); ok {
				out = append(out, statements(r, tree(m).list("PolicyDocument.Statement"))...)
			}
		}
	}
	return out
}

func statements(of resource, raw []any) (out []statement) {
	for _, x := range raw {
		m, ok := x.(map[string]any)
		if !ok {
			continue
		}
		s := tree(m)
		condition, _ := s.at("Condition").(map[string]any)
		out = append(out, statement{
			of:        of,
			id:        s.text("Sid"),
			allow:     s.text("Effect") == "Allow",
			actions:   texts(s.at("Action")),
			resources: texts(s.at("Resource")),
			principal: flat(s.at("Principal")),
			condition: condition,
		})
	}
	return out
}

// role returns the statements of a function's role.
func (t template) role(tt *testing.T, function string) []statement {
	tt.Helper()
	f := t.physical(tt, "AWS::Lambda::Function", "FunctionName", t.name+"-"+function)
	id, _ := f.Properties.list("Role.Fn::GetAtt")[0].(string)
	return t.policyOf(id)
}

// policyOf returns the statements of a role or of a managed policy, without the
// role's trust policy.
func (t template) policyOf(id string) (out []statement) {
	for _, s := range t.policies() {
		if s.of.id == id && s.principal == "" {
			out = append(out, s)
		}
	}
	return out
}

// partitions returns the patterns of the table's partitions that the statement is
// limited to.
func (s statement) partitions() []string {
	return texts(s.condition.at("ForAllValues:StringLike.dynamodb:LeadingKeys"))
}
