package bucket_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rollout/shared/blob"
	"rollout/shared/blob/blobtest"
	"rollout/shared/disk"
	"rollout/shared/disk/disktest"
	"rollout/shared/embedded/bucket"
	"rollout/shared/fault"
)

// use opens the bucket on the disk for one process, and closes it.
func use(d disk.Disk, dir string, unnamed bool, do func(b *bucket.Bucket) error) error {
	b, err := bucket.Open(filepath.Join(dir, "up", "bucket"), bucket.Options{Disk: d})
	if err != nil {
		return err
	}
	if !unnamed {
		b.DisableUnnamedFiles()
	}
	return errors.Join(do(b), b.Close())
}

// promises are what a bucket must hold after a failure of the power: of each key one of
// the contents. The content "" stands for no object.
type promises map[string][]string

// promiseCase is a case of an operation that brings the bucket from one state to another.
type promiseCase struct {
	unnamed       bool
	before, after map[string]string // contents of objects; "" is no object
	between       map[string]string // objects that exist only in the middle of the operation
	loses         bool              // what the operation removes may exist again
	do            func(b *bucket.Bucket, d disk.Disk) error
}

func (c promiseCase) disktest() disktest.Case {
	ctx := context.Background()
	return disktest.Case{
		Prepare: func(d disk.Disk, dir string) error {
			if len(c.before) == 0 {
				return nil
			}
			return use(d, dir, c.unnamed, func(b *bucket.Bucket) error {
				for key, content := range c.before {
					if _, err := b.Put(ctx, key, strings.NewReader(content), blob.PutOptions{}); err != nil {
						return err
					}
				}
				return nil
			})
		},
		Do: func(d disk.Disk, dir string) error {
			return use(d, dir, c.unnamed, func(b *bucket.Bucket) error { return c.do(b, d) })
		},
		Check: func(d disk.Disk, dir string, done bool) error {
			p := promises{}
			for key, content := range c.before {
				p[key] = append(p[key], content)
			}
			for key, content := range c.after {
				if c.before[key] == "" {
					p[key] = append(p[key], "")
				}
				if done && !(content == "" && c.loses) {
					p[key] = nil
				}
				p[key] = append(p[key], content)
			}
			for key, content := range c.between {
				p[key] = append(p[key], "", content)
			}
			return use(d, dir, c.unnamed, p.check)
		},
	}
}

// check returns which promise the bucket breaks.
func (p promises) check(b *bucket.Bucket) error {
	ctx := context.Background()
	objects, err := b.List(ctx, "", "", 1000)
	if err != nil {
		return err
	}
	found := map[string]bool{}
	for _, info := range objects {
		found[info.Key] = true
		r, _, err := b.Get(ctx, info.Key, blob.GetOptions{Version: info.Version})
		if err != nil {
			return err
		}
		content, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			return err
		}
		if len(content) == 0 || !slices.Contains(p[info.Key], string(content)) {
			return fmt.Errorf("%s has %d bytes, which nobody put", info.Key, len(content))
		}
	}
	for key, contents := range p {
		if !found[key] && !slices.Contains(contents, "") {
			return fmt.Errorf("%s is missing", key)
		}
	}
	return nil
}

// someContent returns random bytes of several pages of a file.
func someContent(r *rand.Rand) string {
	b := make([]byte, 1+r.IntN(4<<10), 12<<10)
	for i := range b {
		b[i] = byte(1 + r.IntN(255))
	}
	return strings.Repeat(string(b), 1+r.IntN(3))
}

// someKey returns a key in new or existing folders.
func someKey(r *rand.Rand) string {
	return []string{"new", "a/new", "a/b/new", "x/y/z/new"}[r.IntN(4)]
}

// someBucket returns what a bucket holds.
func someBucket(r *rand.Rand) map[string]string {
	before := map[string]string{}
	if r.IntN(4) == 0 {
		return before
	}
	for _, key := range []string{"old", "a/old", "a/b/old", "a/b/older"} {
		if r.IntN(2) == 0 {
			before[key] = someContent(r)
		}
	}
	return before
}

// exists takes the Conflict of a create-only put for success, as callers do.
func exists(err error) error {
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}

const foldersMadeAgain = "put into a folder made again"

func operations() []disktest.Operation {
	ctx := context.Background()
	put := func(b *bucket.Bucket, key, content string, o blob.PutOptions) error {
		_, err := b.Put(ctx, key, strings.NewReader(content), o)
		return err
	}
	cases := []struct {
		name string
		new  func(r *rand.Rand, c *promiseCase, key, content string)
	}{
		{"create", func(_ *rand.Rand, c *promiseCase, key, content string) {
			c.do = func(b *bucket.Bucket, _ disk.Disk) error {
				return exists(put(b, key, content, blob.PutOptions{CreateOnly: true}))
			}
		}},
		{"create what exists", func(r *rand.Rand, c *promiseCase, key, content string) {
			c.before[key] = someContent(r)
			c.after[key] = c.before[key]
			c.do = func(b *bucket.Bucket, _ disk.Disk) error {
				return exists(put(b, key, content, blob.PutOptions{CreateOnly: true}))
			}
		}},
		{"put", func(_ *rand.Rand, c *promiseCase, key, content string) {
			c.do = func(b *bucket.Bucket, _ disk.Disk) error { return put(b, key, content, blob.PutOptions{}) }
		}},
		{"replace", func(r *rand.Rand, c *promiseCase, key, content string) {
			c.before[key] = someContent(r)
			c.do = func(b *bucket.Bucket, _ disk.Disk) error {
				info, err := b.Stat(ctx, key, "")
				return errors.Join(err, put(b, key, content, blob.PutOptions{IfVersion: info.Version}))
			}
		}},
		{"submit", func(_ *rand.Rand, c *promiseCase, key, content string) {
			c.do = func(b *bucket.Bucket, _ disk.Disk) error {
				source := filepath.Join(filepath.Dir(b.Dir()), "source")
				if err := os.WriteFile(source, []byte(content), 0o600); err != nil {
					return err
				}
				return b.PutFileForTest(ctx, source, key)
			}
		}},
		{"join", func(r *rand.Rand, c *promiseCase, key, _ string) {
			c.before["a/1"], c.before["2"] = someContent(r), someContent(r)
			c.after[key] = c.before["a/1"] + c.before["2"][:1]
			c.do = func(b *bucket.Bucket, _ disk.Disk) error {
				_, err := b.Join(ctx, key, []blob.Range{{Key: "a/1"}, {Key: "2", Length: 1}})
				return exists(err)
			}
		}},
		{"copy and delete", func(r *rand.Rand, c *promiseCase, key, content string) {
			c.before["pending/1"] = content
			c.after["pending/1"], c.loses = "", true
			c.do = func(b *bucket.Bucket, _ disk.Disk) error {
				if _, err := b.Copy(ctx, key, "pending/1"); err != nil && !fault.Is(err, fault.NotFound) {
					return exists(err)
				}
				return b.Delete(ctx, "pending/1", "")
			}
		}},
		// One process removes a folder that another one knows, and a third one makes it
		// again and is killed.
		{foldersMadeAgain, func(r *rand.Rand, c *promiseCase, _, content string) {
			killed := r.IntN(12)
			c.after, c.loses = map[string]string{"f/g/2": "2", "f/g/3": content}, true
			c.between = map[string]string{"f/g/1": "1"}
			c.do = func(b *bucket.Bucket, d disk.Disk) error {
				another := func(calls int, do func(b *bucket.Bucket) error) error {
					p := d.(*disktest.Process).Another(calls)
					return use(p, filepath.Dir(filepath.Dir(b.Dir())), c.unnamed, do)
				}
				err := put(b, "f/g/1", "1", blob.PutOptions{})
				err = errors.Join(err, another(100, func(b *bucket.Bucket) error { return b.Delete(ctx, "f/g/1", "") }))
				_ = another(killed, func(b *bucket.Bucket) error { return put(b, "f/g/2", "2", blob.PutOptions{}) })
				return errors.Join(err, put(b, "f/g/3", content, blob.PutOptions{}),
					put(b, "f/g/2", "2", blob.PutOptions{}))
			}
		}},
	}
	var all []disktest.Operation
	for _, each := range cases {
		all = append(all, disktest.Operation{Name: each.name, New: func(r *rand.Rand) disktest.Case {
			c := promiseCase{unnamed: r.IntN(2) == 0, before: someBucket(r)}
			key, content := someKey(r), someContent(r)
			c.after = map[string]string{key: content}
			each.new(r, &c, key, content)
			return c.disktest()
		}})
	}
	return all
}

func TestObjectsSurvivePowerFailures(t *testing.T) {
	t.Parallel()
	disktest.TryEach(t, operations())
}

// A folder of a disk may get the inode number of one that was removed.
func TestObjectsInFoldersWithKnownInodeNumbersSurvivePowerFailures(t *testing.T) {
	t.Parallel()
	for _, o := range operations() {
		if o.Name == foldersMadeAgain {
			o.OnDisk = true
			disktest.Try(t, o)
		}
	}
}

func TestEachSyncOfObjectsIsNeeded(t *testing.T) {
	t.Parallel()
	disktest.FindEverySync(t, operations())
}

// TestBucketConformsOnDisk runs the suite over the disk whose power fails at the end of
// each test. All objects are there afterwards.
func TestBucketConformsOnDisk(t *testing.T) {
	t.Parallel()
	blobtest.Run(t, func(t *testing.T) blob.Store {
		dir := t.TempDir()
		m := disktest.New(dir)
		b, err := bucket.Open(dir, bucket.Options{Disk: m.Start()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			after := t.TempDir()
			m.Reboot(rand.New(rand.NewPCG(1, 1)), after)
			survived := openBucket(t, after)
			objects, err := b.List(context.Background(), "", "", 1000)
			if err != nil {
				t.Error(err)
			}
			for _, o := range objects {
				if got, want := content(t, survived, o.Key), content(t, b, o.Key); !bytes.Equal(got, want) {
					t.Errorf("%s has %d other bytes after a power failure, want %d", o.Key, len(got), len(want))
				}
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
		return b
	}, blobtest.Features{InMemory: true}) // the machine keeps the contents of all objects
}

func content(t *testing.T, b *bucket.Bucket, key string) []byte {
	t.Helper()
	r, _, err := b.Get(context.Background(), key, blob.GetOptions{})
	if err != nil {
		t.Error(err)
		return nil
	}
	content, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Error(err)
	}
	return content
}
