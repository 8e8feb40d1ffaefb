package gcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"time"

	firestore "cloud.google.com/go/firestore/apiv1"
	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"rollout/shared/document"
	"rollout/shared/fault"
)

// DocumentOptions configure Documents. Collection, Listed and Spread determine the
// names of documents; they must not change during the life of the database.
type DocumentOptions struct {
	// Database is the id of the database; default: "(default)".
	Database string
	// Collection is the collection of all documents; default: "rollout".
	Collection string
	// Listed are the first parts of keys that are listed often, such as "run"; see
	// ListedDocuments.
	Listed []string
	// Spread is the number of ranges of names of all other documents, at most 256;
	// 0 means 64.
	Spread int
	// SDK are further options of the client, for tests.
	SDK []option.ClientOption
}

// Documents is a collection of a Firestore database as a document.Store. The
// collection's fields should not be indexed: names alone find documents.
//
// A write is one Commit of one document, without a transaction. A revision is the
// document's update time, which grows with each write, also over a deletion. Each
// write puts a new nonce into its document. So it always changes the update time,
// and a repeated request that finds its own nonce knows that it succeeded before.
type Documents struct {
	client     *firestore.Client
	database   string // projects/acme/databases/(default)
	collection string // the last part of its path
	names      names
}

var _ document.Store = (*Documents)(nil)

// Fields of a document.
const (
	valueField = "v"
	nonceField = "n"
)

const (
	defaultDatabase   = "(default)"
	defaultCollection = "rollout"
	// documentTimeout bounds one request with the SDK's repetitions of it. The SDK
	// alone would repeat a read without end while Firestore cannot be reached.
	documentTimeout = 20 * time.Second
)

// NewDocuments returns the documents of a database. It sends no request. ctx is for
// the client's construction only.
func NewDocuments(ctx context.Context, cfg Config, o DocumentOptions) (*Documents, error) {
	client, err := newFirestore(ctx, cfg, o.SDK)
	if err != nil {
		return nil, translate(ctx, err, "make the client of Firestore")
	}
	return &Documents{
		client:     client,
		database:   "projects/" + cfg.Project + "/databases/" + cmp.Or(o.Database, defaultDatabase),
		collection: cmp.Or(o.Collection, defaultCollection),
		names:      names{o.Listed, cmp.Or(o.Spread, spread)},
	}, nil
}

// Create writes a document that must not exist; see document.Store.
func (d *Documents) Create(ctx context.Context, key string, value []byte) (document.Revision, error) {
	if err := document.CheckWrite(key, value); err != nil {
		return "", err
	}
	return d.put(ctx, key, value, &pb.Precondition{ConditionType: &pb.Precondition_Exists{Exists: false}})
}

// Replace writes a document whose revision must still be rev; see
// document.Store.
func (d *Documents) Replace(ctx context.Context, key string, value []byte, rev document.Revision) (
	document.Revision, error,
) {
	if err := document.CheckWrite(key, value); err != nil {
		return "", err
	}
	condition, ok := revisionIs(rev)
	if !ok {
		return "", fault.New(fault.Conflict, "write document %s: %q is not a revision", key, rev)
	}
	return d.put(ctx, key, value, condition)
}

// put writes a document under a condition and returns its new revision.
func (d *Documents) put(ctx context.Context, key string, value []byte, condition *pb.Precondition) (
	document.Revision, error,
) {
	nonce := rand.Text()
	fields := map[string]*pb.Value{
		valueField: {ValueType: &pb.Value_BytesValue{BytesValue: value}},
		nonceField: {ValueType: &pb.Value_StringValue{StringValue: nonce}},
	}
	updated, repeated, err := d.commit(ctx, &pb.Write{
		Operation:       &pb.Write_Update{Update: &pb.Document{Name: d.nameOf(key), Fields: fields}},
		CurrentDocument: condition,
	})
	switch {
	case err == nil:
		return revisionOf(updated), nil
	case !conditionFailed(err):
		return "", d.translate(ctx, err, "write document %s", key)
	case !repeated:
		return "", fault.WithKind(fault.Conflict, err, "write document %s", key)
	}
	now, found, currentErr := d.current(ctx, key)
	switch {
	case currentErr != nil:
		return "", fault.Wrap(currentErr, "read the document after a conflict")
	case found == nonce: // an earlier try of this write succeeded
		return now, nil
	}
	return "", fault.WithKind(fault.Conflict, err, "write document %s", key)
}

// Delete removes a document whose revision must still be rev; see
// document.Store. If the document is gone and the SDK repeated the request after a
// lost reply, Delete assumes that its own earlier try removed it.
func (d *Documents) Delete(ctx context.Context, key string, rev document.Revision) error {
	if err := document.CheckKey(key); err != nil {
		return err
	}
	condition, ok := revisionIs(rev)
	repeated := false
	if ok {
		var err error
		_, repeated, err = d.commit(ctx, &pb.Write{
			Operation: &pb.Write_Delete{Delete: d.nameOf(key)}, CurrentDocument: condition,
		})
		if err == nil || !conditionFailed(err) {
			return d.translate(ctx, err, "delete document %s", key)
		}
	}
	now, _, err := d.current(ctx, key)
	switch {
	case err != nil:
		return err
	case now == "" && repeated:
		return nil
	case now == "":
		return fault.New(fault.NotFound, "delete document %s: it does not exist", key)
	}
	return fault.New(fault.Conflict, "delete document %s: its revision is %s, not %s", key, now, cmp.Or(rev, `""`))
}

// conditionFailed reports whether Firestore refused a write because of the state of
// its document.
func conditionFailed(err error) bool {
	switch codeOf(err) {
	case codes.AlreadyExists, codes.NotFound, codes.FailedPrecondition:
		return true
	}
	return false
}

// current returns the revision and the nonce of a document, "" and "" if it does
// not exist.
func (d *Documents) current(ctx context.Context, key string) (rev document.Revision, nonce string, err error) {
	found, err := d.getAll(ctx, []string{key})
	if err != nil || found[key] == nil {
		return "", "", err
	}
	return revisionOf(found[key].UpdateTime.AsTime()), found[key].Fields[nonceField].GetStringValue(), nil
}

// Ping reads a document that need not exist; see document.Store.
func (d *Documents) Ping(ctx context.Context) error {
	_, err := d.getAll(ctx, []string{"ping"})
	return err
}

// revisionLayout is the form of revisions: the update time with all the digits that
// a time may have.
const revisionLayout = "2006-01-02T15:04:05.000000000Z"

// revisionOf returns the revision of a document that was updated at t.
func revisionOf(t time.Time) document.Revision {
	return document.Revision(t.UTC().Format(revisionLayout))
}

// revisionIs returns the condition that a document's revision is rev. ok is false
// for a text that is not a revision.
func revisionIs(rev document.Revision) (condition *pb.Precondition, ok bool) {
	t, err := time.Parse(revisionLayout, string(rev))
	if err != nil || revisionOf(t) != rev {
		return nil, false
	}
	return &pb.Precondition{ConditionType: &pb.Precondition_UpdateTime{UpdateTime: timestamppb.New(t)}}, true
}
