//go:build !linux

package sidecar

import (
	"syscall"

	"rollout/shared/config"
)

// attributes make the program the first of a group.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// limit does nothing: this system can't limit a program that runs.
func limit(int, config.PluginRuntime) error { return nil }
