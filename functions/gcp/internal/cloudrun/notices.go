package cloudrun

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

// auditEntry is an entry of the audit log about an instance.
type auditEntry struct {
	Payload struct {
		Method   string `json:"methodName"`
		Resource string `json:"resourceName"` // Example: "projects/p/zones/z/instances/rollout-small-g2-x1c2"
		Status   struct {
			Message string `json:"message"`
		} `json:"status"`
	} `json:"protoPayload"`
	Resource struct {
		Type   string `json:"type"`
		Labels struct {
			Instance string `json:"instance_id"`
		} `json:"labels"`
	} `json:"resource"`
	Timestamp time.Time `json:"timestamp"`
}

// noticeKinds are the kinds of the system events about machines that end. Compute
// Engine reports each when it has ended the machine, or begins to.
var noticeKinds = map[string]cloud.NoticeKind{
	"compute.instances.preempted":                  cloud.MachinePreempted,
	"compute.instances.hostError":                  cloud.MachineStopping,
	"compute.instances.guestTerminate":             cloud.MachineStopping,
	"compute.instances.terminateOnHostMaintenance": cloud.MachineStopping,
	"compute.instances.repair.recreateInstance":    cloud.MachineTerminated,
}

var (
	instanceID = regexp.MustCompile(`^[1-9][0-9]{0,19}$`)
	// managerName matches the group in the message of a recreated instance.
	managerName = regexp.MustCompile(`^Instance Group Manager '[^']*/instanceGroupManagers/([a-z0-9-]+)'`)
	// memberName matches the group in the name of an instance that a group made.
	memberName = regexp.MustCompile(`/instances/([a-z0-9-]+)-[a-z0-9]{4}$`)
)

// longestReason bounds what is kept of Google's own words, in bytes.
const longestReason = 512

// readNotice returns the notice that an entry of the audit log is. ok is false for
// entries about other things. Bytes that are not an entry, and a notice without an
// instance id, are Invalid.
func readNotice(entry []byte) (n cloud.MachineNotice, ok bool, err error) {
	var e auditEntry
	if err := json.Unmarshal(entry, &e); err != nil {
		return n, false, fault.WithKind(fault.Invalid, err, "read the entry of the audit log")
	}
	kind := noticeKinds[e.Payload.Method]
	if kind == "" || e.Resource.Type != "gce_instance" {
		return n, false, nil
	}
	if id := e.Resource.Labels.Instance; !instanceID.MatchString(id) {
		return n, false, fault.New(fault.Invalid, "the entry names the instance %.64q, which is not an instance id", id)
	}
	said := e.Payload.Status.Message
	n = cloud.MachineNotice{Kind: kind, Machine: e.Resource.Labels.Instance, At: e.Timestamp,
		Reason: text.Truncate(cmp.Or(said, e.Payload.Method), longestReason, "")}
	group := managerName.FindStringSubmatch(said)
	if group == nil {
		group = memberName.FindStringSubmatch(e.Payload.Resource)
	}
	if group != nil {
		n.Fleet = group[1]
	}
	return n, true, nil
}

// Notices returns the handler of the subscription with the audit log's entries about
// instances, also those of other installations. It logs and acknowledges entries that
// are not notices, because repeating them would not help.
func Notices(p host.Ports, handle func(context.Context, cloud.MachineNotice) error) Handler {
	return func(ctx context.Context, m Push) error {
		n, ok, err := readNotice(m.Data)
		if !ok {
			p.Log.InfoContext(ctx, "ignored an entry that is not a notice", observe.KeyMessage, m.ID, observe.KeyError, err)
			return nil
		}
		return handle(ctx, n)
	}
}
