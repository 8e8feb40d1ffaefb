//go:build !linux

package isolation

import (
	"context"

	"rollout/shared/fault"
)

const onlyLinux = "sandboxes need Linux"

// Sandbox runs no commands on this system.
type Sandbox struct{}

// Open returns a sandbox that refuses.
func Open(string, ...string) (*Sandbox, error) { return &Sandbox{}, nil }

// Probe returns Refused.
func (*Sandbox) Probe(context.Context) (Level, string) { return Refused, onlyLinux }

// Run refuses.
func (*Sandbox) Run(context.Context, Command) (Outcome, error) {
	return Outcome{}, fault.New(fault.Denied, "this machine cannot isolate commands: %s", onlyLinux)
}

// Room refuses.
func (*Sandbox) Room() error { return fault.New(fault.Denied, "%s", onlyLinux) }

// Scratch refuses.
func (*Sandbox) Scratch() (dir string, release func() error, err error) {
	return "", nil, fault.New(fault.Denied, "this machine cannot isolate commands: %s", onlyLinux)
}

// Main reports false: there are no helper processes.
func Main([]string) bool { return false }
