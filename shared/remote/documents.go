package remote

import (
	"context"

	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/remote/portsv1"
)

// Documents implements document.Store. Use Client.Documents to get one.
type Documents struct {
	client *Client
	rpc    portsv1.DocumentsClient
}

var _ document.Store = (*Documents)(nil)

// Get is document.Store's.
func (s *Documents) Get(ctx context.Context, key string) (document.Doc, error) {
	if err := document.CheckKey(key); err != nil {
		return document.Doc{}, err
	}
	d, err := call(ctx, s.client, s.rpc.Get, &portsv1.DocumentKey{Key: key})
	return docOf(d), fault.Wrap(err, "get document %s", key)
}

// GetMany is document.Store's. It asks again for what did not fit into an answer.
func (s *Documents) GetMany(ctx context.Context, keys []string) ([]document.Doc, error) {
	if err := document.CheckKeys(keys); err != nil {
		return nil, err
	}
	docs := make([]document.Doc, 0, len(keys))
	for len(docs) < len(keys) {
		page, err := call(ctx, s.client, s.rpc.GetMany, &portsv1.DocumentKeys{Keys: keys[len(docs):]})
		if err == nil && (len(page.Documents) == 0 || len(page.Documents) > len(keys)-len(docs)) {
			err = fault.New(fault.Unavailable, "the server answered %d documents for %d keys", len(page.Documents),
				len(keys)-len(docs))
		}
		if err != nil {
			return nil, fault.Wrap(err, "get %d documents", len(keys))
		}
		docs = append(docs, docsOf(page)...)
	}
	for i := range docs {
		if docs[i].Revision == "" {
			docs[i].Value = nil
		}
	}
	return docs, nil
}

// Create is document.Store's.
func (s *Documents) Create(ctx context.Context, key string, value []byte) (document.Revision, error) {
	if err := document.CheckWrite(key, value); err != nil {
		return "", err
	}
	rev, err := call(ctx, s.client, s.rpc.Create, &portsv1.DocumentWrite{Key: key, Value: value})
	return document.Revision(rev.GetRevision()), fault.Wrap(err, "create document %s", key)
}

// Replace is document.Store's.
func (s *Documents) Replace(ctx context.Context, key string, value []byte, rev document.Revision) (
	document.Revision, error) {
	if err := document.CheckWrite(key, value); err != nil {
		return "", err
	}
	next, err := call(ctx, s.client, s.rpc.Replace,
		&portsv1.DocumentWrite{Key: key, Value: value, Revision: valid(string(rev))})
	return document.Revision(next.GetRevision()), fault.Wrap(err, "replace document %s", key)
}

// Delete is document.Store's.
func (s *Documents) Delete(ctx context.Context, key string, rev document.Revision) error {
	if err := document.CheckKey(key); err != nil {
		return err
	}
	_, err := call(ctx, s.client, s.rpc.Delete, &portsv1.DocumentRevision{Key: key, Revision: valid(string(rev))})
	return fault.Wrap(err, "delete document %s", key)
}

// List is document.Store's.
func (s *Documents) List(ctx context.Context, prefix, after string, limit int) ([]document.Doc, error) {
	if err := document.CheckList(prefix, after, limit); err != nil {
		return nil, err
	}
	page, err := call(ctx, s.client, s.rpc.List,
		&portsv1.DocumentList{Prefix: prefix, After: after, Limit: int32(limit)}) // at most document.MaxPage
	return docsOf(page), fault.Wrap(err, "list documents %s", prefix)
}

// Ping is document.Store's.
func (s *Documents) Ping(ctx context.Context) error {
	_, err := call(ctx, s.client, s.rpc.Ping, &portsv1.PingRequest{})
	return fault.Wrap(err, "reach the installation")
}

func docOf(d *portsv1.Document) document.Doc {
	return document.Doc{Key: d.GetKey(), Value: d.GetValue(), Revision: document.Revision(d.GetRevision())}
}

func docsOf(page *portsv1.DocumentPage) []document.Doc {
	docs := make([]document.Doc, 0, len(page.GetDocuments()))
	for _, d := range page.GetDocuments() {
		docs = append(docs, docOf(d))
	}
	return docs
}
