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

// configs are where the config is looked for, if -c config names none: here,
// and at the repository's root.
var configs = []string{"rollout.toml", "../../rollout.toml"}

// settings reads what was given with -c, or stands in cdk.json, and the config
// that it names.
func settings(node constructs.Node) (stack.Settings, error) {
	c := cdkContext{node: node}
	s := stack.Settings{
		Bucket:       c.text("bucket", stack.Made),
		Table:        c.text("table", stack.Made),
		Machines:     c.flag("gpu", true),
		Arch:         c.text("arch", stack.ArchARM),
		FunctionsDir: c.text("lambda", "../../out/lambda"),
		WorkerBinary: c.text("worker", "../../out/machine/gpuworker"),
		Zones:        c.number("zones", 2),
		Email:        c.text("email", ""),
		Budget:       c.number("budget", 100),
		BootScript:   boot,
	}
	path, err := c.file("config", configs)
	all, _ := node.GetAllContext(nil).(map[string]any)
	c.problems = append(c.problems, misspelt(slices.Sorted(maps.Keys(all)), c.asked)...)
	if err != nil || len(c.problems) > 0 {
		return s, fault.WithKind(fault.Invalid, errors.Join(append(c.problems, err)...), "read what is given with -c")
	}
	src, err := os.ReadFile(path)
	if err != nil {
		return s, &fault.Error{Kind: fault.NotFound, Op: "read the config", Err: err, Remedy: "name it with -c config=FILE; examples/aws.toml is a first one"}
	}
	s.Deployment, s.Config, err = stack.ReadConfig(path, src)
	return s, err
}

// cdkContext are the context of an app: text, but for what cdk.json says.
type cdkContext struct {
	node     constructs.Node
	asked    []string // names
	problems []error
}

func (v *cdkContext) text(name, fallback string) string {
	v.asked = append(v.asked, name)
	x := v.node.TryGetContext(&name)
	if x == nil {
		return fallback
	}
	return fmt.Sprint(x)
}

// misspelt are the names given that are none of the known: what was meant by
// them, such as no machines, must not be done otherwise in silence. The CDK's own
// names have a colon or a slash.
func misspelt(given, known []string) (problems []error) {
	for _, name := range given {
		if !strings.ContainsAny(name, ":/") && !slices.Contains(known, name) {
			problems = append(problems, fmt.Errorf("there is no -c %s: there are %s", name, strings.Join(slices.Sorted(slices.Values(known)), ", ")))
		}
	}
	return problems
}

func (v *cdkContext) flag(name string, fallback bool) bool {
	text := v.text(name, strconv.FormatBool(fallback))
	on, err := strconv.ParseBool(text)
	if err != nil {
		v.problems = append(v.problems, fmt.Errorf("%s is %q: it is true or false", name, text))
	}
	return on
}

func (v *cdkContext) number(name string, fallback int) int {
	text := v.text(name, strconv.Itoa(fallback))
	n, err := strconv.Atoi(text)
	if err != nil {
		v.problems = append(v.problems, fmt.Errorf("%s is %q: it is a whole number", name, text))
	}
	return n
}

// file returns the named file, or the first of the others that is there.
func (v *cdkContext) file(name string, others []string) (string, error) {
	if path := v.text(name, ""); path != "" {
		return path, nil
	}
	for _, path := range others {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", &fault.Error{Kind: fault.NotFound, Err: fmt.Errorf("there is no %s", others[0]), Remedy: "write one (examples/aws.toml), or name it with -c config=FILE"}
}
