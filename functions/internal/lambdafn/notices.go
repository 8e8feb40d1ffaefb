package lambdafn

import (
	"context"
	"encoding/json"
	"regexp"

	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
)

// Notice is what EC2 says of a machine that will be gone soon.
type Notice struct {
	Instance string // Example: "i-0123456789abcdef0"
	Reason   string // Example: "spot interruption"
}

// ec2Event is what EventBridge calls a function with about an instance.
type ec2Event struct {
	Source     string `json:"source"` // "aws.ec2"
	DetailType string `json:"detail-type"`
	Detail     struct {
		Instance string `json:"instance-id"`
		State    string `json:"state"` // of a state change
	} `json:"detail"`
}

var instanceID = regexp.MustCompile(`^i-[0-9a-f]{8,17}$`)

// ReadNotice returns the notice that an event is; ok is false if it is none:
// about something else, of another service, or of a machine that stays. What is
// no event of EventBridge, or names no instance, is Invalid.
func ReadNotice(event []byte) (n Notice, ok bool, err error) {
	var e ec2Event
	if err := json.Unmarshal(event, &e); err != nil {
		return n, false, fault.As(fault.Invalid, err, "read the event")
	}
	if e.Source != "aws.ec2" {
		return n, false, nil
	}
	switch e.DetailType {
	case "EC2 Spot Instance Interruption Warning":
		n.Reason = "spot interruption"
	case "EC2 Instance Rebalance Recommendation":
		n.Reason = "rebalance recommendation"
	case "EC2 Instance State-change Notification":
		switch e.Detail.State {
		case "shutting-down", "stopping", "stopped", "terminated":
			n.Reason = "the instance is " + e.Detail.State
		}
	}
	if n.Reason == "" {
		return n, false, nil
	}
	if !instanceID.MatchString(e.Detail.Instance) {
		return Notice{}, false, fault.New(fault.Invalid, "an event about the instance %.64q, which is no name of one", e.Detail.Instance)
	}
	n.Instance = e.Detail.Instance
	return n, true, nil
}

// Notices is a function that EventBridge calls with what EC2 says of instances,
// those of others included. What is no notice is logged and left alone, as no
// repetition makes it one.
func Notices(p host.Ports, handle func(ctx context.Context, n Notice) error) func(context.Context, json.RawMessage) error {
	return func(ctx context.Context, event json.RawMessage) error {
		ctx, cancel := early(ctx)
		defer cancel()
		n, ok, err := ReadNotice(event)
		if !ok {
			p.Log.InfoContext(ctx, "an event that is no notice", observe.KeyError, err)
			return nil
		}
		return handle(ctx, n)
	}
}
