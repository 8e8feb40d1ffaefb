package gcp

import (
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"time"

	firestore "cloud.google.com/go/firestore/apiv1"
	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"rollout/shared/fault"
)

// newFirestore returns the client of Firestore, or that of the emulator that the
// environment names.
func newFirestore(ctx context.Context, cfg Config, own []option.ClientOption) (*firestore.Client, error) {
	options := cfg.clientOptions(FirestoreEmulatorVariable, own...)
	if address := os.Getenv(FirestoreEmulatorVariable); address != "" {
		options = append(options, option.WithEndpoint("passthrough:///"+address), option.WithoutAuthentication(),
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	}
	return firestore.NewClient(ctx, options...)
}

// nameOf returns the resource name of the document with a key.
func (d *Documents) nameOf(key string) string {
	return d.parent() + "/" + d.collection + "/" + d.names.of(key)
}

// parent returns the resource name below which the collection is.
func (d *Documents) parent() string { return d.database + "/documents" }

// begin returns a context for one request: with its time limit, and with the
// headers by which Firestore finds a database with a name of its own.
func (d *Documents) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = metadata.AppendToOutgoingContext(ctx, "google-cloud-resource-prefix", d.database,
		"x-goog-request-params", "database="+url.QueryEscape(d.database))
	return context.WithTimeout(ctx, documentTimeout)
}

// commit sends one write and returns the document's new update time. repeated is
// true if the SDK sent it more than once, and an earlier try may have succeeded
// without a reply.
func (d *Documents) commit(ctx context.Context, w *pb.Write) (updated time.Time, repeated bool, err error) {
	inTime, cancel := d.begin(ctx)
	defer cancel()
	tries := &commitTries{}
	out, err := d.client.Commit(inTime, &pb.CommitRequest{Database: d.database, Writes: []*pb.Write{w}},
		gax.WithRetry(func() gax.Retryer { return tries }))
	if err == nil && len(out.WriteResults) != 1 {
		err = fault.New(fault.Unavailable, "Firestore answered one write with %d results", len(out.WriteResults))
	}
	if err != nil {
		return time.Time{}, tries.unknown, err
	}
	return out.WriteResults[0].UpdateTime.AsTime(), tries.unknown, nil
}

// commitTries decides about the repetition of one Commit, and notes whether an
// earlier try may have taken effect. Firestore aborts a commit when others change
// the document at the same moment.
type commitTries struct {
	backoff gax.Backoff
	unknown bool
}

// Retry returns whether to send the request again after err, and when.
func (c *commitTries) Retry(err error) (time.Duration, bool) {
	switch codeOf(err) {
	case codes.Unavailable:
		c.unknown = true
	case codes.Aborted, codes.ResourceExhausted:
	default:
		return 0, false
	}
	c.backoff.Initial, c.backoff.Max, c.backoff.Multiplier = 100*time.Millisecond, 5*time.Second, 1.5
	return c.backoff.Pause(), true
}

// getAll reads the documents with the keys, at least one, by their keys. It leaves
// out documents that do not exist.
func (d *Documents) getAll(ctx context.Context, keys []string) (map[string]*pb.Document, error) {
	in, keyOf := &pb.BatchGetDocumentsRequest{Database: d.database}, map[string]string{}
	for _, key := range keys {
		name := d.nameOf(key)
		if _, repeated := keyOf[name]; !repeated {
			in.Documents = append(in.Documents, name)
			keyOf[name] = key
		}
	}
	inTime, cancel := d.begin(ctx)
	defer cancel()
	found := make(map[string]*pb.Document, len(in.Documents))
	stream, err := d.client.BatchGetDocuments(inTime, in)
	answers := 0
	for err == nil {
		var out *pb.BatchGetDocumentsResponse
		if out, err = stream.Recv(); err != nil {
			break
		}
		switch r := out.Result.(type) {
		case *pb.BatchGetDocumentsResponse_Found:
			found[keyOf[r.Found.Name]] = r.Found
			answers++
		case *pb.BatchGetDocumentsResponse_Missing:
			answers++
		}
	}
	switch {
	case !errors.Is(err, io.EOF):
		return nil, d.translate(ctx, err, "get %d documents, %s first", len(keys), keys[0])
	case answers < len(in.Documents):
		return nil, fault.New(fault.Unavailable, "get %d documents: Firestore answered for %d of them",
			len(in.Documents), answers)
	}
	return found, nil
}

// query reads the first documents of a range of names, in the order of names: at
// most limit, and less than that of large ones. from is inclusive, to is not.
func (d *Documents) query(ctx context.Context, from, to string, limit int) (p page, err error) {
	inTime, cancel := d.begin(ctx)
	defer cancel()
	stream, err := d.client.RunQuery(inTime, &pb.RunQueryRequest{
		Parent:    d.parent(),
		QueryType: &pb.RunQueryRequest_StructuredQuery{StructuredQuery: d.rangeOfNames(from, to, limit)},
	})
	for size := 0; err == nil && size < pageBytes; {
		var out *pb.RunQueryResponse
		if out, err = stream.Recv(); err != nil || out.Document == nil { // nil: it tells of progress
			continue
		}
		doc, err := d.document(out.Document)
		if err != nil {
			return page{}, err
		}
		p.docs = append(p.docs, doc)
		size += len(doc.Value)
	}
	p.complete = errors.Is(err, io.EOF) && len(p.docs) < limit
	if err != nil && !errors.Is(err, io.EOF) {
		return page{}, d.translate(ctx, err, "query the names from %s on", from)
	}
	return p, nil
}

// translate adds a remedy for a missing database to the common translation.
func (d *Documents) translate(ctx context.Context, err error, format string, args ...any) error {
	err = translate(ctx, err, format, args...)
	if own, ok := err.(*fault.Error); ok && own.Kind == fault.NotFound {
		own.Remedy = "deploy the installation, or check cloud.project and cloud.firestore.database (" + d.database + ")"
	}
	return err
}
