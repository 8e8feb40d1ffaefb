package lambda

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"

	"rollout/events"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/host"
)

// objectEvent has the fields of all events with which the function for new
// objects is called: notifications and test events of S3, events of EventBridge,
// and the product's own.
type objectEvent struct {
	Records []s3Record `json:"Records"`

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

	SpecVersion string `json:"specversion"` // of the product's own events
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

// unversioned is the version id of an object that was created while its bucket
// kept no versions. The next object of that key gets the same version id.
const unversioned = "null"

// Object is an object that was created according to an event.
type Object struct {
	events.ObjectCreated
	// RawKey is the key as the event has it, if decoding changed it. S3 encodes keys in its
	// notifications, and some of its look-alikes do not.
	RawKey string
}

// ReadObjects returns the objects that were created in the bucket according to an
// event, with keys relative to the prefix of the config. An event about anything
// else yields no objects. An object without a version is Invalid, because it can't
// be pinned.
func ReadObjects(in config.S3, event []byte) (created []Object, err error) {
	var e objectEvent
	if err := json.Unmarshal(event, &e); err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "read the event")
	}
	add := func(bucket, key, raw, version string, size int64) {
		key, ours := strings.CutPrefix(key, in.Prefix)
		raw, rawOurs := strings.CutPrefix(raw, in.Prefix)
		if !ours && rawOurs {
			key, ours = raw, true
		}
		switch {
		case !ours || key == "" || bucket != in.Bucket:
		case version == "", version == unversioned:
			err = errors.Join(err, &fault.Error{Kind: fault.Invalid, Remedy: "let the bucket keep versions",
				Err: fault.New(fault.Invalid, "object %q of bucket %s has no version", key, bucket)})
		default:
			o := Object{ObjectCreated: events.ObjectCreated{Bucket: bucket, Key: key, Version: version, Size: size}}
			if rawOurs && raw != key {
				o.RawKey = raw
			}
			created = append(created, o)
		}
	}
	for _, r := range e.Records {
		if r.EventSource != "aws:s3" || !strings.HasPrefix(r.EventName, "ObjectCreated:") {
			continue
		}
		raw := r.S3.Object.Key
		key, decodeErr := url.QueryUnescape(raw)
		if decodeErr != nil { // it is not encoded
			key = raw
		}
		add(r.S3.Bucket.Name, key, raw, r.S3.Object.VersionID, r.S3.Object.Size)
	}
	if e.Source == "aws.s3" && e.DetailType == "Object Created" {
		add(e.Detail.Bucket.Name, e.Detail.Object.Key, e.Detail.Object.Key, e.Detail.Object.VersionID, e.Detail.Object.Size)
	}
	if e.SpecVersion != "" {
		_, payload, decodeErr := events.Decode(event)
		own, ok := payload.(events.ObjectCreated)
		switch {
		case decodeErr != nil:
			err = fault.WithKind(fault.Invalid, decodeErr, "decode the event")
		case !ok:
			err = fault.New(fault.Invalid, "event %T is not for submit", payload)
		case own.Bucket == in.Bucket:
			created = append(created, Object{ObjectCreated: own})
		}
	}
	return created, err
}

// Objects returns a function that is called for new objects of the bucket: by S3,
// directly or through EventBridge, or with an event of the product; and for retries of
// runs and for batches, with an event of the product. If one of several objects fails, all are handled
// again.
func Objects(p host.Ports, in config.S3, handle func(context.Context, events.ObjectCreated) error,
	retry func(context.Context, events.RetryRequested) error,
	batch func(context.Context, events.BatchRequested) error) eventHandler {
	return func(ctx context.Context, event json.RawMessage) error {
		ctx, cancel := withMargin(ctx)
		defer cancel()
		if _, payload, err := events.Decode(event); err == nil {
			switch e := payload.(type) {
			case events.RetryRequested:
				return fault.Wrap(retry(ctx, e), "retry run %s", e.Parent)
			case events.BatchRequested:
				return fault.Wrap(batch(ctx, e), "make the run of batch %s", e.Run)
			}
		}
		created, err := ReadObjects(in, event)
		if len(created) == 0 && err == nil {
			p.Log.InfoContext(ctx, "event ignored: it names no new object of the bucket")
		}
		for _, o := range created {
			e, statErr := existing(ctx, p.Blobs, o)
			if statErr != nil {
				err = errors.Join(err, statErr)
				continue
			}
			err = errors.Join(err, fault.Wrap(handle(ctx, e), "submit the object %s", e.Key))
		}
		return err
	}
}

// existing returns the event of an object with the key that it has: the decoded one or, if
// there is no such object, the raw one.
func existing(ctx context.Context, blobs blob.Store, o Object) (events.ObjectCreated, error) {
	e := o.ObjectCreated
	if o.RawKey == "" || blob.CheckKey(o.RawKey) != nil {
		return e, nil
	}
	if blob.CheckKey(e.Key) == nil {
		if _, err := blobs.Stat(ctx, e.Key, e.Version); !fault.Is(err, fault.NotFound) {
			return e, fault.Wrap(err, "find the object %s", e.Key)
		}
	}
	switch _, err := blobs.Stat(ctx, o.RawKey, e.Version); {
	case err == nil:
		e.Key = o.RawKey
	case !fault.Is(err, fault.NotFound):
		return e, fault.Wrap(err, "find the object %s", o.RawKey)
	}
	return e, nil
}
