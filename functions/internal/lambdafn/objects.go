package lambdafn

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"

	"rollout/events"
	"rollout/shared/fault"
	"rollout/shared/host"
)

// s3Event is what S3 calls a function with, or EventBridge on its behalf, or S3
// to try out whether it may.
type s3Event struct {
	Records []s3Record `json:"Records"`
	Event   string     `json:"Event"` // "s3:TestEvent"

	Source     string `json:"source"` // of EventBridge: "aws.s3"
	DetailType string `json:"detail-type"`
	Detail     struct {
		Bucket struct {
			Name string `json:"name"`
		} `json:"bucket"`
		Object struct {
			Key       string `json:"key"`
			Size      int64  `json:"size"`
			VersionID string `json:"version-id"`
		} `json:"object"`
	} `json:"detail"`
}

type s3Record struct {
	EventSource string `json:"eventSource"`
	EventName   string `json:"eventName"`
	S3          struct {
		Bucket struct {
			Name string `json:"name"`
		} `json:"bucket"`
		Object struct {
			Key       string `json:"key"`
			Size      int64  `json:"size"`
			VersionID string `json:"versionId"`
		} `json:"object"`
	} `json:"s3"`
}

// Created returns the objects that an event says were created. What says
// nothing of the kind yields none; an object without a version is Invalid, as
// it can't be pinned.
func Created(event []byte) (created []events.ObjectCreated, err error) {
	var e s3Event
	if err := json.Unmarshal(event, &e); err != nil {
		return nil, fault.As(fault.Invalid, err, "read the event")
	}
	add := func(bucket, key, version string, size int64) {
		if version == "" {
			err = errors.Join(err, &fault.Error{Kind: fault.Invalid, Err: fault.New(fault.Invalid, "object %q of bucket %s has no version", key, bucket),
				Remedy: "let the bucket keep versions"})
			return
		}
		created = append(created, events.ObjectCreated{Bucket: bucket, Key: key, Version: version, Size: size})
	}
	for _, r := range e.Records {
		if r.EventSource != "aws:s3" || !strings.HasPrefix(r.EventName, "ObjectCreated:") {
			continue
		}
		key, decodeErr := url.QueryUnescape(r.S3.Object.Key)
		if decodeErr != nil {
			err = errors.Join(err, fault.As(fault.Invalid, decodeErr, "decode the key %.600q", r.S3.Object.Key))
			continue
		}
		add(r.S3.Bucket.Name, key, r.S3.Object.VersionID, r.S3.Object.Size)
	}
	if e.Source == "aws.s3" && e.DetailType == "Object Created" {
		add(e.Detail.Bucket.Name, e.Detail.Object.Key, e.Detail.Object.VersionID, e.Detail.Object.Size)
	}
	return created, err
}

// Objects is a function that S3 calls for new objects, in notifications or
// through EventBridge. If one of several fails, all are handled again.
func Objects(p host.Ports, handle func(context.Context, events.ObjectCreated) error) func(context.Context, json.RawMessage) error {
	return func(ctx context.Context, event json.RawMessage) error {
		ctx, cancel := early(ctx)
		defer cancel()
		created, err := Created(event)
		if len(created) == 0 && err == nil {
			p.Log.InfoContext(ctx, "an event about no new object")
		}
		for _, e := range created {
			err = errors.Join(err, fault.Wrap(handle(ctx, e), "take the object %s", e.Key))
		}
		if err != nil {
			failed(ctx, p.Log, "objects not taken", err)
		}
		return err
	}
}
