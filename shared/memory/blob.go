package memory

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/fault"
)

// Bucket is a blob.Store in memory. It keeps no old versions; a version is the number
// of the put that created it. Use NewBucket to create one. It is safe for concurrent
// use.
type Bucket struct {
	clock   clock.Clock
	mu      sync.RWMutex
	objects map[string]object
	puts    uint64
}

// object is immutable: a put replaces it as a whole.
type object struct {
	info  blob.Info
	bytes []byte
}

var _ blob.Store = (*Bucket)(nil)

// NewBucket returns an empty bucket. Its objects get their times from the clock.
func NewBucket(c clock.Clock) *Bucket {
	return &Bucket{clock: c, objects: make(map[string]object)}
}

// Put writes an object; see blob.Store. It reads r to its end without a lock, and then
// checks the condition.
func (b *Bucket) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (blob.Info, error) {
	if err := blob.CheckPut(key, o); err != nil {
		return blob.Info{}, err
	}
	content, err := io.ReadAll(r)
	if err != nil {
		return blob.Info{}, err
	}
	if err := ctx.Err(); err != nil {
		return blob.Info{}, fault.Wrap(err, "put %s", key)
	}
	info, err := b.store(key, content, o)
	return info, fault.Wrap(err, "put %s", key)
}

// store makes the content the key's next version if the condition of o holds.
func (b *Bucket) store(key string, content []byte, o blob.PutOptions) (blob.Info, error) {
	now := b.clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	current, exists := b.objects[key]
	if o.CreateOnly && exists {
		return blob.Info{}, fault.New(fault.Conflict, "the object exists, at version %s", current.info.Version)
	}
	if o.IfVersion != "" && o.IfVersion != current.info.Version {
		return blob.Info{}, fault.New(fault.Conflict, "version %s is not the current one, which is %q",
			o.IfVersion, current.info.Version)
	}
	b.puts++
	info := blob.Info{Key: key, Size: int64(len(content)), Version: strconv.FormatUint(b.puts, 10),
		ModTime: now.Round(0).In(time.UTC)}
	b.objects[key] = object{info: info, bytes: content}
	return info, nil
}

// Get reads an object; see blob.Store.
func (b *Bucket) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	if err := blob.CheckGet(key, o); err != nil {
		return nil, blob.Info{}, err
	}
	found, err := b.find(ctx, key, o.Version)
	if err != nil {
		return nil, blob.Info{}, fault.Wrap(err, "get %s", key)
	}
	part := found.bytes[min(o.Offset, found.info.Size):]
	if o.Length > 0 {
		part = part[:min(o.Length, int64(len(part)))]
	}
	return io.NopCloser(bytes.NewReader(part)), found.info, nil
}

// Stat returns the properties of an object; see blob.Store.
func (b *Bucket) Stat(ctx context.Context, key, version string) (blob.Info, error) {
	if err := blob.CheckKey(key); err != nil {
		return blob.Info{}, err
	}
	found, err := b.find(ctx, key, version)
	return found.info, fault.Wrap(err, "stat %s", key)
}

// find returns the object with the key and version; "" is the current version.
func (b *Bucket) find(ctx context.Context, key, version string) (object, error) {
	if err := ctx.Err(); err != nil {
		return object{}, err
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	found, exists := b.objects[key]
	if !exists {
		return object{}, fault.New(fault.NotFound, "the object does not exist")
	}
	if version != "" && version != found.info.Version {
		return object{}, fault.New(fault.NotFound, "version %s is gone, the object is at version %s",
			version, found.info.Version)
	}
	return found, nil
}

// List returns objects in byte order of their keys; see blob.Store.
func (b *Bucket) List(ctx context.Context, prefix, after string, limit int) ([]blob.Info, error) {
	if err := blob.CheckList(prefix, limit); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fault.Wrap(err, "list %s", prefix)
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	var page []blob.Info
	for key, found := range b.objects {
		if strings.HasPrefix(key, prefix) && key > after {
			page = append(page, found.info)
		}
	}
	slices.SortFunc(page, func(x, y blob.Info) int { return strings.Compare(x.Key, y.Key) })
	return page[:min(limit, len(page))], nil
}

// Join creates dst from ranges of other objects; see blob.Store.
func (b *Bucket) Join(ctx context.Context, dst string, parts []blob.Range) (blob.Info, error) {
	if err := blob.CheckJoin(dst, parts); err != nil {
		return blob.Info{}, err
	}
	var joined []byte
	for _, part := range parts {
		found, err := b.find(ctx, part.Key, "")
		if err != nil {
			return blob.Info{}, fault.Wrap(err, "join %s: read %s", dst, part.Key)
		}
		offset, length, err := part.Resolve(found.info.Size)
		if err != nil {
			return blob.Info{}, fault.Wrap(err, "join %s", dst)
		}
		joined = append(joined, found.bytes[offset:offset+length]...)
	}
	info, err := b.store(dst, joined, blob.PutOptions{CreateOnly: true})
	return info, fault.Wrap(err, "join %s", dst)
}

// Copy creates dst as a copy of src; see blob.Store.
func (b *Bucket) Copy(ctx context.Context, dst, src string) (blob.Info, error) {
	return b.Join(ctx, dst, []blob.Range{{Key: src}})
}

// Delete removes an object; see blob.Store.
func (b *Bucket) Delete(ctx context.Context, key, version string) error {
	if err := blob.CheckKey(key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fault.Wrap(err, "delete %s", key)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	current, exists := b.objects[key]
	if exists && version != "" && version != current.info.Version {
		return fault.New(fault.Conflict, "delete %s: version %s is gone, the object is at version %s",
			key, version, current.info.Version)
	}
	delete(b.objects, key)
	return nil
}
