package cloud

import "time"

// MachineNotice is a provider's notice that a machine ends, will end, or cannot
// start.
type MachineNotice struct {
	Kind    NoticeKind
	Machine string // the provider's id; empty if Kind is LaunchFailed. Example: "i-0123456789abcdef0"
	Fleet   string // the group of machines that sent the notice; optional
	Reason  string // in the provider's words. Example: "spot interruption"
	At      time.Time
}

// NoticeKind says what happens to the machine of a notice.
type NoticeKind string

// Kinds of notices.
const (
	MachinePreempted  NoticeKind = "preempted"     // the provider will soon reclaim it
	MachineAtRisk     NoticeKind = "at_risk"       // the provider recommends to leave it: it may be reclaimed
	MachineStopping   NoticeKind = "stopping"      // it stops, for any reason
	MachineTerminated NoticeKind = "terminated"    // its fleet ended it for another reason than scaling in
	LaunchFailed      NoticeKind = "launch_failed" // its fleet cannot start a machine
)
