package models

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

// Find returns the manifest of a commit of a model of the hub; NotFound if the bucket lacks
// it.
func (c Cache) Find(ctx context.Context, name, commit string) (Manifest, error) {
	if err := CheckTagged(name); err != nil {
		return Manifest{}, err
	}
	if !IsCommit(commit) {
		return Manifest{}, fault.New(fault.Invalid, "%.64q is not a commit of a model", commit)
	}
	return c.load(ctx, HubKey(name, commit))
}

// FindWhole is Find, but NotFound as well if the bucket lacks a block of the model. It asks
// for each block, and reads none.
func (c Cache) FindWhole(ctx context.Context, name, commit string) (Manifest, error) {
	m, err := c.Find(ctx, name, commit)
	if err == nil {
		err = c.whole(ctx, m)
	}
	return m, err
}

// whole returns NotFound if the bucket lacks a block of the model.
func (c Cache) whole(ctx context.Context, m Manifest) error {
	var all, lacks atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fetchesAtOnce)
	for _, f := range m.Files {
		for i, id := range f.Blocks {
			all.Add(1)
			group.Go(func() error {
				there, err := c.has(ctx, id, f.blockSize(i))
				if err == nil && !there {
					lacks.Add(1)
				}
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		return fault.Wrap(err, "look for the blocks of %s", m.Name)
	}
	if n := lacks.Load(); n > 0 {
		return fault.New(fault.NotFound, "the bucket lacks %d of the %d blocks of %s", n, all.Load(), m.Name)
	}
	return nil
}

// FindOwn returns the manifest of another model by its key; see IsOwnKey.
func (c Cache) FindOwn(ctx context.Context, key string) (Manifest, error) {
	if !IsOwnKey(key) {
		return Manifest{}, fault.New(fault.Invalid, "%.128q is not the manifest of a model", key)
	}
	return c.load(ctx, key)
}

func (c Cache) load(ctx context.Context, key string) (Manifest, error) {
	text, err := c.read(ctx, key)
	if err != nil {
		return Manifest{}, err
	}
	return decode(key, text)
}

// read reads a small object.
func (c Cache) read(ctx context.Context, key string) ([]byte, error) {
	r, _, err := c.Blobs.Get(ctx, key, blob.GetOptions{})
	if err != nil {
		return nil, fault.Wrap(err, "read %s", key)
	}
	defer r.Close() // read only
	text, err := io.ReadAll(io.LimitReader(r, maxManifest+1))
	if err != nil {
		return nil, fault.Wrap(err, "read %s", key)
	}
	if len(text) > maxManifest {
		return nil, fault.New(fault.Corrupt, "%s is longer than %d bytes", key, maxManifest)
	}
	return text, nil
}

// Entry is a model in the bucket.
type Entry struct {
	Key      string    `json:"key"` // of its manifest
	Name     string    `json:"name"`
	Revision string    `json:"revision,omitempty"`
	StoredAt time.Time `json:"stored_at"`
	Files    int       `json:"files"`
	Bytes    int64     `json:"bytes"`
	// Problem says why machines can't use it; "" if they can.
	Problem string `json:"problem,omitempty"`

	blocks []string
}

// List returns all models in the bucket, in the order of their keys.
func (c Cache) List(ctx context.Context) (all []Entry, err error) {
	for _, prefix := range []string{hubPrefix, ownPrefix} {
		err := c.each(ctx, prefix, func(info blob.Info) error {
			if !strings.HasSuffix(info.Key, manifestEnd) {
				return nil
			}
			e := Entry{Key: info.Key, StoredAt: info.ModTime.UTC()}
			m, err := c.load(ctx, info.Key)
			switch {
			case fault.Is(err, fault.Corrupt):
				e.Name, e.Problem = strings.TrimSuffix(strings.TrimPrefix(info.Key, prefix), manifestEnd), err.Error()
			case err != nil:
				return err
			}
			if err == nil {
				e.Name, e.Revision, e.Files, e.Bytes = m.Name, m.Revision, len(m.Files), m.Size()
			}
			for _, f := range m.Files {
				e.blocks = append(e.blocks, f.Blocks...)
			}
			all = append(all, e)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// each calls f for all objects below the prefix.
func (c Cache) each(ctx context.Context, prefix string, f func(blob.Info) error) error {
	after := ""
	for {
		page, err := c.Blobs.List(ctx, prefix, after, pageSize)
		if err != nil {
			return err
		}
		for _, info := range page {
			if err := f(info); err != nil {
				return err
			}
		}
		if len(page) < pageSize {
			return nil
		}
		after = page[len(page)-1].Key
	}
}

const pageSize = 1000

// Removed says what a Remove deleted.
type Removed struct {
	Models int   `json:"models"`
	Blocks int   `json:"blocks"`
	Bytes  int64 `json:"bytes"`
}

// Remove deletes the manifests at the keys, and then all blocks that no other manifest
// lists. Blocks of a store that broke go as well, but not those younger than a day, which
// may belong to a store in progress. A machine that fetches such a model meanwhile meets
// absent blocks, and goes on with the hub.
func (c Cache) Remove(ctx context.Context, keys []string, now time.Time) (r Removed, err error) {
	all, err := c.List(ctx)
	if err != nil {
		return r, err
	}
	keep, removed := map[string]bool{}, map[string]bool{}
	gone := make(map[string]bool, len(keys))
	for _, key := range keys {
		gone[key] = true
	}
	for _, e := range all {
		to := keep
		if gone[e.Key] {
			to = removed
			if err := c.Blobs.Delete(ctx, e.Key, ""); err != nil {
				return r, fault.Wrap(err, "delete %s", e.Key)
			}
			r.Models++
		}
		for _, id := range e.blocks {
			to[id] = true
		}
	}
	err = c.each(ctx, contentPrefix, func(info blob.Info) error {
		id := info.Key[strings.LastIndexByte(info.Key, '/')+1:]
		if keep[id] || !removed[id] && now.Sub(info.ModTime) < unreferencedAge {
			return nil
		}
		if err := c.Blobs.Delete(ctx, info.Key, info.Version); err != nil && !fault.Is(err, fault.Conflict) {
			return fault.Wrap(err, "delete %s", info.Key)
		}
		r.Blocks, r.Bytes = r.Blocks+1, r.Bytes+info.Size
		return nil
	})
	return r, err
}

// unreferencedAge is the age from which blocks that no manifest lists are deleted.
const unreferencedAge = 24 * time.Hour
