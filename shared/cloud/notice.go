package cloud

import "time"

// MachineNotice is what a provider says of a machine that ends or will end, or
// of one that it can't start.
type MachineNotice struct {
	Kind    NoticeKind
	Machine string // the provider's name of it; empty if Kind is LaunchFailed. Example: "i-0123456789abcdef0"
	Fleet   string // the group of machines that says so, if one does
	Reason  string // in the provider's words. Example: "spot interruption"
	At      time.Time
}

// NoticeKind is what a notice says of its machine.
type NoticeKind string

// The kinds of notices.
const (
	MachinePreempted  NoticeKind = "preempted"     // the provider takes it back soon
	MachineStopping   NoticeKind = "stopping"      // it stops, for whatever reason
	MachineTerminated NoticeKind = "terminated"    // its fleet ended it, and not because it had too many
	LaunchFailed      NoticeKind = "launch_failed" // its fleet can't start one
)
