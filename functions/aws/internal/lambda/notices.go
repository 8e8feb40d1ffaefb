package lambda

import (
	"cmp"
	"context"
	"encoding/json"
	"regexp"
	"time"

	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/text"
)

// Notice is what AWS says of a machine that is or will be gone, or of one that
// does not come.
type Notice struct {
	Kind         NoticeKind
	Instance     string // Example: "i-0123456789abcdef0"; "" of one that does not come
	ScalingGroup string // of Auto Scaling, where that is who says it
	Reason       string // Example: "spot interruption"
	At           time.Time
}

// NoticeKind is what a notice says of its machine.
type NoticeKind string

// The kinds of notices.
const (
	Preempted    NoticeKind = "taken"  // EC2 takes it back
	Stopping     NoticeKind = "down"   // it goes down, whoever wants that
	Terminated   NoticeKind = "ended"  // its group has ended it, and not because it had too many
	LaunchFailed NoticeKind = "absent" // its group can't bring it up
)

// cloudEvent is what EventBridge calls a function with about an instance.
type cloudEvent struct {
	Source     string    `json:"source"`
	DetailType string    `json:"detail-type"`
	Time       time.Time `json:"time"`
	Detail     struct {
		// Of EC2's.
		Instance string `json:"instance-id"`
		State    string `json:"state"` // of a state change
		// Of Auto Scaling's.
		Group   string `json:"AutoScalingGroupName"`
		Member  string `json:"EC2InstanceId"`
		Cause   string `json:"Cause"`
		Message string `json:"StatusMessage"` // of what failed
	} `json:"detail"`
}

var (
	instanceID = regexp.MustCompile(`^i-[0-9a-f]{8,17}$`)
	// causePrefix is what comes before why a group ends a machine. Its text tells of
	// what led to that, and then of the machine.
	causePrefix = regexp.MustCompile(`taken out of service in response to (?:an? )?`)
	// failureCause are the reasons for which a group ends a machine that does not, or
	// did not want to, go on: it asked for that itself, or went down, or hangs.
	// All else happens to machines that are well: the group has too many, or moves
	// them elsewhere.
	failureCause = regexp.MustCompile(`^(?i:user request|[^,.]*health[ -]check|[^,.]*status checks? fail)`)
)

// longestReason bounds what is kept of AWS's own words, in bytes.
const longestReason = 512

// ReadNotice returns the notice that an event is; ok is false if it is none:
// about something else, of another service, or of a machine that stays or was
// one too many. What is no event of EventBridge, or names no instance, is
// Invalid.
func ReadNotice(event []byte) (n Notice, ok bool, err error) {
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
		return Notice{}, false, nil
	}
	n.At = e.Time
	if n.Kind != LaunchFailed && !instanceID.MatchString(n.Instance) {
		return Notice{}, false, fault.New(fault.Invalid, "an event about the instance %.64q, which is no name of one", n.Instance)
	}
	return n, true, nil
}

func (e cloudEvent) ofEC2() Notice {
	n := Notice{Instance: e.Detail.Instance}
	switch e.DetailType {
	case "EC2 Spot Instance Interruption Warning":
		n.Kind, n.Reason = Preempted, "spot interruption"
	case "EC2 Instance Rebalance Recommendation":
		n.Kind, n.Reason = Preempted, "rebalance recommendation"
	case "EC2 Instance State-change Notification":
		switch e.Detail.State {
		case "shutting-down", "stopping", "stopped", "terminated":
			n.Kind, n.Reason = Stopping, "the instance is "+e.Detail.State
		}
	}
	return n
}

func (e cloudEvent) ofAutoScaling() Notice {
	n := Notice{ScalingGroup: e.Detail.Group}
	switch e.DetailType {
	case "EC2 Instance Terminate Successful":
		all := causePrefix.FindAllStringIndex(e.Detail.Cause, -1)
		if len(all) == 0 {
			break
		}
		why := e.Detail.Cause[all[len(all)-1][1]:]
		if failureCause.MatchString(why) {
			n.Kind, n.Instance, n.Reason = Terminated, e.Detail.Member, text.Truncate(why, longestReason, "")
		}
	case "EC2 Instance Launch Unsuccessful":
		n.Kind, n.Reason = LaunchFailed, text.Truncate(cmp.Or(e.Detail.Message, e.Detail.Cause), longestReason, "")
	}
	return n
}

// Notices is a function that EventBridge calls with what AWS says of instances,
// those of others included. What is no notice is logged and left alone, as no
// repetition makes it one.
func Notices(p host.Ports, handle func(ctx context.Context, n Notice) error) func(context.Context, json.RawMessage) error {
	return func(ctx context.Context, event json.RawMessage) error {
		ctx, cancel := withMargin(ctx)
		defer cancel()
		n, ok, err := ReadNotice(event)
		if !ok {
			p.Log.InfoContext(ctx, "an event that is no notice", observe.KeyError, err)
			return nil
		}
		return handle(ctx, n)
	}
}
