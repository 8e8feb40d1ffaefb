package join

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/listen"
	"rollout/shared/queue"
	"rollout/shared/record"
	"rollout/shared/secret"
)

// rights are what a worker may do, as the roles of workers in a cloud have it. All are prefixes
// of keys, but for the names of queues and secrets.
type rights struct {
	reads, creates, deletes    []string // objects; none may be overwritten
	lists, writes, deletesDocs []string // documents; all but hidden ones may be read
	receives, sends            []string // queues
	secrets                    []string
}

// hidden are the documents that no worker may read.
var hidden = []string{record.JoinPrefix}

// rightsOf returns the rights of a worker of the pool; "" is any pool that answers prompts.
func rightsOf(d config.Deployment, pool string) rights {
	training, _ := d.TrainPool()
	if pool != "" && pool == training.Name {
		return trainerRights(pool)
	}
	r := rights{
		reads: []string{record.PromptsPrefix, record.FilesPrefix, record.WorkPrefix, record.RunsPrefix,
			record.PendingPrefix, record.ModelsPrefix},
		creates: []string{record.WorkPrefix, record.PendingPrefix, contentPrefix, record.ModelsPrefix},
		deletes: []string{clockPrefix},
		lists:   []string{record.HeartbeatPrefix},
		writes:  []string{record.HeartbeatPrefix, shardPrefix, record.LimitPrefix},
	}
	for _, p := range d.InferPools() {
		if pool == "" || p.Name == pool {
			r.addQueues(p.Name)
		}
	}
	for _, name := range d.Secrets {
		if name != listen.TokenSecret && name != d.Notify.Secret {
			r.secrets = append(r.secrets, name)
		}
	}
	return r
}

// trainerRights returns those of a pool that trains: its workers keep snapshots.
func trainerRights(pool string) rights {
	r := rights{
		reads:       []string{record.PromptsPrefix, record.WorkPrefix, record.PendingPrefix, contentPrefix},
		creates:     []string{record.WorkPrefix, record.PendingPrefix, contentPrefix},
		deletes:     []string{record.PendingPrefix, contentPrefix},
		lists:       []string{record.HeartbeatPrefix, snapshotPrefix, referencePrefix},
		writes:      []string{record.HeartbeatPrefix, shardPrefix, snapshotPrefix, referencePrefix},
		deletesDocs: []string{snapshotPrefix, referencePrefix},
	}
	r.addQueues(pool)
	return r
}

// Prefixes of what workers write.
const (
	shardPrefix     = "shard/"
	snapshotPrefix  = "snapshot/"
	referencePrefix = "content/"
	contentPrefix   = "cas/"
	clockPrefix     = record.PendingPrefix + "clock-" // by which workers compare their clock
)

func (r *rights) addQueues(pool string) {
	work, urgent := host.WorkQueue(pool), host.UrgentQueue(pool)
	r.receives = append(r.receives, work, urgent)
	r.sends = append(r.sends, host.CoordinateQueue, queue.DeadLetterQueue(work), queue.DeadLetterQueue(urgent))
}

// allow returns nil if a name begins with one of the prefixes, else Denied.
func allow(prefixes []string, name, does, what string) error {
	if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
		return nil
	}
	return denied(does, what, name)
}

// allowName is allow for whole names.
func allowName(names []string, name, does, what string) error {
	if slices.Contains(names, name) {
		return nil
	}
	return denied(does, what, name)
}

func denied(does, what, name string) error {
	return fault.New(fault.Denied, "a worker may not %s %s %.128q", does, what, name)
}

// documents are the documents that the rights allow.
type documents struct {
	document.Store
	rights rights
}

func (s documents) mayRead(keys ...string) error {
	for _, key := range keys {
		if slices.ContainsFunc(hidden, func(p string) bool { return strings.HasPrefix(key, p) }) {
			return denied("read", "the document", key)
		}
	}
	return nil
}

func (s documents) Get(ctx context.Context, key string) (document.Doc, error) {
	if err := s.mayRead(key); err != nil {
		return document.Doc{}, err
	}
	return s.Store.Get(ctx, key)
}

func (s documents) GetMany(ctx context.Context, keys []string) ([]document.Doc, error) {
	if err := s.mayRead(keys...); err != nil {
		return nil, err
	}
	return s.Store.GetMany(ctx, keys)
}

func (s documents) Create(ctx context.Context, key string, value []byte) (document.Revision, error) {
	if err := allow(s.rights.writes, key, "write", "the document"); err != nil {
		return "", err
	}
	return s.Store.Create(ctx, key, value)
}

func (s documents) Replace(ctx context.Context, key string, value []byte, rev document.Revision) (
	document.Revision, error) {
	if err := allow(s.rights.writes, key, "write", "the document"); err != nil {
		return "", err
	}
	return s.Store.Replace(ctx, key, value, rev)
}

func (s documents) Delete(ctx context.Context, key string, rev document.Revision) error {
	if err := allow(s.rights.deletesDocs, key, "delete", "the document"); err != nil {
		return err
	}
	return s.Store.Delete(ctx, key, rev)
}

func (s documents) List(ctx context.Context, prefix, after string, limit int) ([]document.Doc, error) {
	if err := allow(s.rights.lists, prefix, "list", "documents"); err != nil {
		return nil, err
	}
	return s.Store.List(ctx, prefix, after, limit)
}

// objects are the objects that the rights allow. None may be overwritten.
type objects struct {
	blob.Store
	rights rights
}

func (s objects) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (blob.Info, error) {
	err := allow(s.rights.creates, key, "create", "the object")
	if err == nil && !o.CreateOnly {
		err = denied("overwrite", "the object", key)
	}
	if err != nil {
		return blob.Info{}, err
	}
	return s.Store.Put(ctx, key, r, o)
}

func (s objects) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	if err := allow(s.rights.reads, key, "read", "the object"); err != nil {
		return nil, blob.Info{}, err
	}
	return s.Store.Get(ctx, key, o)
}

func (s objects) Stat(ctx context.Context, key, version string) (blob.Info, error) {
	if err := allow(s.rights.reads, key, "read", "the object"); err != nil {
		return blob.Info{}, err
	}
	return s.Store.Stat(ctx, key, version)
}

func (s objects) List(_ context.Context, prefix, _ string, _ int) ([]blob.Info, error) {
	return nil, denied("list", "objects", prefix)
}

func (s objects) Join(ctx context.Context, dst string, parts []blob.Range) (blob.Info, error) {
	err := allow(s.rights.creates, dst, "create", "the object")
	for _, p := range parts {
		if err == nil {
			err = allow(s.rights.reads, p.Key, "read", "the object")
		}
	}
	if err != nil {
		return blob.Info{}, err
	}
	return s.Store.Join(ctx, dst, parts)
}

func (s objects) Copy(ctx context.Context, dst, src string) (blob.Info, error) {
	err := allow(s.rights.creates, dst, "create", "the object")
	if err == nil {
		err = allow(s.rights.reads, src, "read", "the object")
	}
	if err != nil {
		return blob.Info{}, err
	}
	return s.Store.Copy(ctx, dst, src)
}

func (s objects) Delete(ctx context.Context, key, version string) error {
	if err := allow(s.rights.deletes, key, "delete", "the object"); err != nil {
		return err
	}
	return s.Store.Delete(ctx, key, version)
}

// queues are the queues that the rights allow.
type queues struct {
	queue.Queues
	rights rights
}

func (s queues) Send(ctx context.Context, name string, bodies [][]byte, delay time.Duration) error {
	if err := allowName(s.rights.sends, name, "send to", "the queue"); err != nil {
		return err
	}
	return s.Queues.Send(ctx, name, bodies, delay)
}

func (s queues) mayReceive(name string) error {
	return allowName(s.rights.receives, name, "receive from", "the queue")
}

func (s queues) Receive(ctx context.Context, name string, most int, visibility, wait time.Duration) (
	[]queue.Message, error) {
	if err := s.mayReceive(name); err != nil {
		return nil, err
	}
	return s.Queues.Receive(ctx, name, most, visibility, wait)
}

func (s queues) Extend(ctx context.Context, name, receipt string, visibility time.Duration) error {
	if err := s.mayReceive(name); err != nil {
		return err
	}
	return s.Queues.Extend(ctx, name, receipt, visibility)
}

func (s queues) Ack(ctx context.Context, name string, receipts []string) error {
	if err := s.mayReceive(name); err != nil {
		return err
	}
	return s.Queues.Ack(ctx, name, receipts)
}

func (s queues) Nack(ctx context.Context, name, receipt string, delay time.Duration) error {
	if err := s.mayReceive(name); err != nil {
		return err
	}
	return s.Queues.Nack(ctx, name, receipt, delay)
}

// secrets are the secrets that the rights allow.
type secrets struct {
	secret.Store
	rights rights
}

func (s secrets) Get(ctx context.Context, name string) (secret.Value, error) {
	if err := allowName(s.rights.secrets, name, "read", "the secret"); err != nil {
		return secret.Value{}, err
	}
	return s.Store.Get(ctx, name)
}
