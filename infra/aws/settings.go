package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/constructs-go/constructs/v10"

	"rollout/infra/aws/stack"
	"rollout/shared/fault"
)

// defaultConfigs are the files that the config is read from if -c config is not
// given: in this folder, then at the repository's root. The first that exists
// is used.
var defaultConfigs = []string{"rollout.toml", "../../rollout.toml"}

// readSettings reads the context values from -c and cdk.json, and the config
// file that they name. An unknown name or a malformed value is Invalid; all
// such problems are reported at once.
func readSettings(node constructs.Node) (stack.Settings, error) {
	c := cdkContext{node: node}
	s := stack.Settings{
		Bucket:       c.text("bucket", stack.Made),
		Table:        c.text("table", stack.Made),
		API:          c.flag("api", true),
		Machines:     c.flag("gpu", true),
		Sessions:     c.flag("ssm", false),
		Arch:         c.text("arch", stack.ArchARM),
		FunctionsDir: c.text("lambda", "../../out/lambda"),
		WorkerBinary: c.text("worker", "../../out/machine/gpuworker"),
		Zones:        c.number("zones", 0),
		Network: stack.Network{
			Kind:          c.text("network", ""),
			VPC:           c.text("vpc", ""),
			Subnets:       c.list("subnets"),
			SecurityGroup: c.text("security_group", ""),
			Endpoints:     c.flag("endpoints", false),
			RouteTables:   c.list("route_tables"),
		},
		Identity: stack.Identity{
			Boundary: c.text("boundary", ""),
			Path:     c.text("role_path", ""),
			Prefix:   c.text("role_prefix", ""),
		},
		Keys:       c.keys(),
		Email:      c.text("email", ""),
		Budget:     c.number("budget", 100),
		BootScript: bootScript,
	}
	path, err := c.file("config", defaultConfigs)
	all, _ := node.GetAllContext(nil).(map[string]any)
	c.problems = append(c.problems, unknownNames(slices.Sorted(maps.Keys(all)), c.known)...)
	if err != nil || len(c.problems) > 0 {
		return s, fault.WithKind(fault.Invalid, errors.Join(append(c.problems, err)...), "read the values given with -c")
	}
	src, err := os.ReadFile(path)
	if err != nil {
		return s, &fault.Error{
			Kind:   fault.NotFound,
			Op:     "read the config",
			Err:    err,
			Remedy: "name it with -c config=FILE; start from examples/aws.toml",
		}
	}
	s.Deployment, s.Config, err = stack.ReadConfig(path, src)
	return s, err
}

// cdkContext reads the context values of a CDK app. It collects the names that
// were read and the values that could not be parsed.
type cdkContext struct {
	node     constructs.Node
	known    []string // names that were read
	problems []error
}

// text returns the named value as text, or fallback if it is not given. Values
// from -c are strings; values from cdk.json may have other types.

func (v *cdkContext) text(name, fallback string) string {
	v.known = append(v.known, name)
	x := v.node.TryGetContext(&name)
	if x == nil {
		return fallback
	}
	return fmt.Sprint(x)
}

// list returns the words of the named value, which commas separate, or nil if it is not
// given.
func (v *cdkContext) list(name string) (words []string) {
	for word := range strings.SplitSeq(v.text(name, ""), ",") {
		if word = strings.TrimSpace(word); word != "" {
			words = append(words, word)
		}
	}
	return words
}

// keys returns the KMS keys: kms is that of all parts that have none of their own, and
// "aws" leaves a part to a key of AWS.
func (v *cdkContext) keys() stack.Keys {
	all := v.text("kms", "")
	of := func(part string) string {
		if key := v.text("kms_"+part, all); key != "aws" {
			return key
		}
		return ""
	}
	return stack.Keys{
		Bucket: of("bucket"), Queues: of("queues"), Table: of("table"), Disks: of("disks"),
		Secrets: v.text("kms_secrets", ""), Read: v.list("kms_read"),
	}
}

// unknownNames returns a problem for each given name that is not known. A
// misspelt name must not be ignored: with -c gpus=false, ignoring it would deploy
// machines. Names with a colon or a slash are the CDK's own and always pass.
func unknownNames(given, known []string) (problems []error) {
	valid := strings.Join(slices.Sorted(slices.Values(known)), ", ")
	for _, name := range given {
		if !strings.ContainsAny(name, ":/") && !slices.Contains(known, name) {
			problems = append(problems, fmt.Errorf("-c %s is not a setting: use one of %s", name, valid))
		}
	}
	return problems
}

func (v *cdkContext) flag(name string, fallback bool) bool {
	text := v.text(name, strconv.FormatBool(fallback))
	on, err := strconv.ParseBool(text)
	if err != nil {
		v.problems = append(v.problems, fmt.Errorf("%s is %q: use true or false", name, text))
	}
	return on
}

func (v *cdkContext) number(name string, fallback int) int {
	text := v.text(name, strconv.Itoa(fallback))
	n, err := strconv.Atoi(text)
	if err != nil {
		v.problems = append(v.problems, fmt.Errorf("%s is %q: use a whole number", name, text))
	}
	return n
}

// file returns the path that the named value gives, or else the first of the
// fallbacks that exists.
func (v *cdkContext) file(name string, fallbacks []string) (string, error) {
	if path := v.text(name, ""); path != "" {
		return path, nil
	}
	for _, path := range fallbacks {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", &fault.Error{
		Kind:   fault.NotFound,
		Err:    fmt.Errorf("%s does not exist", fallbacks[0]),
		Remedy: "copy examples/aws.toml to it, or name another file with -c config=FILE",
	}
}
