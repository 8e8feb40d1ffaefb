package cloudrun

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"rollout/events"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/queue"
)

// Attributes of a bucket's notification, and the event of a new object. The
// notification of a copied or composed object is the same.
const (
	eventTypeAttribute  = "eventType"
	bucketAttribute     = "bucketId"
	objectAttribute     = "objectId"
	generationAttribute = "objectGeneration"
	objectCreated       = "OBJECT_FINALIZE"
)

// Bucket names a bucket, and the part of it that belongs to an installation.
type Bucket struct {
	Name   string
	Prefix string // of all keys; may be empty. Example: "team-a/"
}

// readObject returns the object that was created according to a notification, with
// its key relative to the prefix. ok is false for a notification about anything
// else. A notification that lacks what it must say is Invalid.
func (b Bucket) readObject(m Push) (created events.ObjectCreated, ok bool, err error) {
	key, ours := strings.CutPrefix(m.Attributes[objectAttribute], b.Prefix)
	if m.Attributes[eventTypeAttribute] != objectCreated || m.Attributes[bucketAttribute] != b.Name || !ours || key == "" {
		return events.ObjectCreated{}, false, nil
	}
	generation := m.Attributes[generationAttribute]
	if n, err := strconv.ParseInt(generation, 10, 64); err != nil || n <= 0 {
		return events.ObjectCreated{}, false, fault.New(fault.Invalid,
			"the notification about %.200q has the generation %.40q, which is not a number", key, generation)
	}
	var object struct {
		Size int64 `json:"size,string"`
	}
	if err := json.Unmarshal(m.Data, &object); err != nil {
		return events.ObjectCreated{}, false, fault.WithKind(fault.Invalid, err, "read the notification about %.200q", key)
	}
	return events.ObjectCreated{Bucket: b.Name, Key: key, Version: generation, Size: object.Size}, true, nil
}

// Objects returns the handler of the subscription with the bucket's notifications.
// It moves an object that can't be handled (Invalid) to the dead letters of the tasks
// queue, as the event of the product that the notification stands for. A notification
// that can't be read is logged and acknowledged: reclaim finds the object.
func Objects(p host.Ports, b Bucket, handle func(context.Context, events.ObjectCreated) error) Handler {
	return func(ctx context.Context, m Push) error {
		created, ok, err := b.readObject(m)
		if !ok {
			p.Log.InfoContext(ctx, "ignored a notification that names no new object of the bucket",
				observe.KeyMessage, m.ID, observe.KeyError, err)
			return nil
		}
		err = fault.Wrap(handle(ctx, created), "submit the object %s", created.Key)
		if fault.Is(err, fault.Invalid) {
			p.Log.WarnContext(ctx, "dead letter", observe.KeyQueue, m.Subscription, observe.KeyMessage, m.ID,
				observe.KeyError, err)
			return p.Send(ctx, queue.DeadLetterQueue(host.TaskQueue), created)
		}
		return err
	}
}
