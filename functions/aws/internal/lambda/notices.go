package lambda

import (
	"cmp"
	"context"
	"encoding/json"
	"regexp"
	"time"

	"rollout/shared/cloud"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/text"
)

// cloudEvent is an event of EventBridge about an instance.
type cloudEvent struct {
	Source     string    `json:"source"`
	DetailType string    `json:"detail-type"`
	Time       time.Time `json:"time"`
	Detail     struct {
		// Members of EC2's events.
		Instance string `json:"instance-id"`
		State    string `json:"state"` // of a state change
		// Members of Auto Scaling's events.
		Group   string `json:"AutoScalingGroupName"`
		Member  string `json:"EC2InstanceId"`
		Cause   string `json:"Cause"`
		Message string `json:"StatusMessage"` // of what failed
	} `json:"detail"`
}

var (
	instanceID = regexp.MustCompile(`^i-[0-9a-f]{8,17}$`)
	// causePrefix precedes the reason why a group ends a machine. The text first
	// tells what led to it, then names the machine.
	causePrefix = regexp.MustCompile(`taken out of service in response to (?:an? )?`)
	// failureCause matches the reasons for which a group ends a machine that
	// failed or that asked for its end. All other reasons concern healthy machines:
	// the group has too many, or moves them elsewhere.
	failureCause = regexp.MustCompile(`^(?i:user request|[^,.]*health[ -]check|[^,.]*status checks? fail)`)
)

// longestReason bounds what is kept of AWS's own words, in bytes.
const longestReason = 512

// ReadNotice returns the notice that an event of EventBridge is. ok is false for
// events about other things, of other services, and of machines that stay or that
// their group had too many of. Bytes that are not such an event, and a notice
// without an instance id, are Invalid.
func ReadNotice(event []byte) (n cloud.MachineNotice, ok bool, err error) {
	var e cloudEvent
	if err := json.Unmarshal(event, &e); err != nil {
		return n, false, fault.WithKind(fault.Invalid, err, "read the event")
	}
	switch e.Source {
	case "aws.ec2":
		n = e.ofEC2()
	case "aws.autoscaling":
		n = e.ofAutoScaling()
	}
	if n.Kind == "" {
		return cloud.MachineNotice{}, false, nil
	}
	n.At = e.Time
	if n.Kind != cloud.LaunchFailed && !instanceID.MatchString(n.Machine) {
		return cloud.MachineNotice{}, false, fault.New(fault.Invalid,
			"the event names the instance %.64q, which is not an instance id", n.Machine)
	}
	return n, true, nil
}

func (e cloudEvent) ofEC2() cloud.MachineNotice {
	n := cloud.MachineNotice{Machine: e.Detail.Instance}
	switch e.DetailType {
	case "EC2 Spot Instance Interruption Warning":
		n.Kind, n.Reason = cloud.MachinePreempted, "spot interruption"
	case "EC2 Instance Rebalance Recommendation":
		n.Kind, n.Reason = cloud.MachineAtRisk, "rebalance recommendation"
	case "EC2 Instance State-change Notification":
		switch e.Detail.State {
		case "shutting-down", "stopping", "stopped", "terminated":
			n.Kind, n.Reason = cloud.MachineStopping, "the instance is "+e.Detail.State
		}
	}
	return n
}

func (e cloudEvent) ofAutoScaling() cloud.MachineNotice {
	n := cloud.MachineNotice{Fleet: e.Detail.Group}
	switch e.DetailType {
	case "EC2 Instance Terminate Successful":
		all := causePrefix.FindAllStringIndex(e.Detail.Cause, -1)
		if len(all) == 0 {
			break
		}
		why := e.Detail.Cause[all[len(all)-1][1]:]
		if failureCause.MatchString(why) {
			n.Kind, n.Machine, n.Reason = cloud.MachineTerminated, e.Detail.Member, text.Truncate(why, longestReason, "")
		}
	case "EC2 Instance Launch Unsuccessful":
		n.Kind, n.Reason = cloud.LaunchFailed, text.Truncate(cmp.Or(e.Detail.Message, e.Detail.Cause), longestReason, "")
	}
	return n
}

// Notices returns a function that EventBridge calls with events about instances,
// also those of other installations. It logs and ignores events that are not
// notices, because repeating them would not help.
func Notices(p host.Ports, handle func(ctx context.Context, n cloud.MachineNotice) error) eventHandler {
	return func(ctx context.Context, event json.RawMessage) error {
		ctx, cancel := withMargin(ctx)
		defer cancel()
		n, ok, err := ReadNotice(event)
		if !ok {
			p.Log.InfoContext(ctx, "ignored an event that is not a notice", observe.KeyError, err)
			return nil
		}
		return handle(ctx, n)
	}
}
