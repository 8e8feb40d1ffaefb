// Package ownership lets one installation alone work on a bucket. Two over one bucket
// and prefix would both answer every upload, and write each other's files.
//
//	documents  installation/id              the id of an installation, created once
//	bucket     rollout-installation.json    the Mark: the id of the bucket's owner
//
//	the bucket has no mark ─────────────────▶ Claim creates it
//	the mark has the id of the documents ───▶ the owner, also after a restore, a copy or a move
//	it was made at this place and host ─────▶ the owner with other documents: Claim changes the mark
//	the documents have no id, see Adopts ───▶ the owner, of a backup without ids: takes the mark's id
//	otherwise ──────────────────────────────▶ refused
//
// Whoever makes runs claims the bucket first: `rollout up`, and the function submit in a
// cloud. Whoever uploads, and the doctor, only check.
package ownership

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"rollout/shared/blob"
	"rollout/shared/cloud"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// Mark is the content of the object that names the owner of a bucket.
type Mark struct {
	Schema       int       `json:"schema"`
	Installation string    `json:"installation"` // the owner's id
	Place        string    `json:"place"`        // where the owner was when it claimed the bucket
	Host         string    `json:"host,omitempty"`
	At           time.Time `json:"at"`
}

// identity is the document that holds the id of an installation.
type identity struct {
	Schema int    `json:"schema"`
	ID     string `json:"id"`
}

// maxMark bounds the size of a mark, in bytes.
const maxMark = 4 << 10

// Bucket is a bucket and the installation that is about to use it.
type Bucket struct {
	host.Ports // Docs is nil for an installation without documents yet
	// Place says where the installation is. Example: "/data/rollout"
	Place string
	// Host is the name of the machine on which one installation alone is at the place; ""
	// in a cloud, where another stack may have the name.
	Host string
	// Address returns where people find an object of the bucket.
	Address func(key string) string
	// Remedy says how to give the installation a bucket of its own.
	Remedy string
	// Adopts is optional. It decides whether an installation without an id, which an
	// earlier version made, owns the bucket with that mark.
	Adopts func(ctx context.Context, m Mark) (bool, error)
}

// CloudInstallation is what OfCloud needs of a cloud.Installation.
type CloudInstallation interface {
	Stores() cloud.Stores
	ObjectURL(key string) string
}

// OfCloud returns the bucket of an installation in a cloud.
func OfCloud(in CloudInstallation) Bucket {
	s := in.Stores()
	return Bucket{Ports: s.Ports, Address: in.ObjectURL,
		Place:  fmt.Sprintf("%s in %s", s.Deployment.Cloud.Name, s.Deployment.Cloud.Region),
		Remedy: "name another bucket, or another prefix in it, in the table [cloud] of the config, and deploy again"}
}

// Claim makes the installation the owner of the bucket, unless the bucket has an owner.
// If another installation owns it, Claim changes nothing in it and returns an Invalid
// error. Claiming a bucket again succeeds. It is safe for concurrent use.
func (b Bucket) Claim(ctx context.Context) error {
	m, version, err := b.mark(ctx) // before the id: who wrote the mark had saved its id
	if err != nil {
		return err
	}
	id, saved, err := b.id(ctx, m)
	if err != nil {
		return err
	}
	if !saved {
		if id == "" && version != "" && !b.made(m) {
			return b.refuse(m)
		}
		if id, err = b.saveID(ctx, cmp.Or(id, rand.Text())); err != nil {
			return err
		}
	}
	if m.Installation != id && (version == "" || b.made(m)) {
		if m, err = b.write(ctx, id, version); err != nil {
			return err
		}
	}
	if m.Installation != id {
		return b.refuse(m)
	}
	return nil
}

// Check returns the error that Claim would return, and changes nothing.
func (b Bucket) Check(ctx context.Context) error {
	m, version, err := b.mark(ctx)
	if err != nil || version == "" || b.made(m) {
		return err
	}
	id, _, err := b.id(ctx, m)
	if err == nil && id != m.Installation {
		err = b.refuse(m)
	}
	return err
}

// ClaimOnce returns a function that claims the bucket, and returns nil without a request
// once it has succeeded. It is safe for concurrent use.
func (b Bucket) ClaimOnce() func(context.Context) error {
	var mu sync.Mutex
	var done bool
	return func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if done {
			return nil
		}
		err := b.Claim(ctx)
		done = err == nil
		return err
	}
}

// made reports whether the mark was made where this installation is.
func (b Bucket) made(m Mark) bool { return b.Host != "" && m.Host == b.Host && m.Place == b.Place }

// id returns the id of the installation: that of its documents, which is saved, or that
// of the mark if it adopts it; else "".
func (b Bucket) id(ctx context.Context, m Mark) (id string, saved bool, err error) {
	if b.Docs == nil {
		return "", false, nil
	}
	var own identity
	_, saved, err = host.Load(ctx, b.Docs, record.InstallationKey, &own)
	if err != nil || saved || m.Installation == "" || b.Adopts == nil {
		return own.ID, saved, err
	}
	adopts, err := b.Adopts(ctx, m)
	if err != nil || !adopts {
		return "", false, err
	}
	return m.Installation, false, nil
}

// saveID saves the id unless the installation has one, and returns the one it has.
func (b Bucket) saveID(ctx context.Context, id string) (string, error) {
	own, err := host.Update(ctx, b.Docs, record.InstallationKey, func(cur identity, found bool) (identity, bool, error) {
		if found {
			return cur, false, nil
		}
		return identity{Schema: record.Schema, ID: id}, true, nil
	})
	return own.ID, err
}

// mark reads the mark. Its version is "" if the bucket has none.
func (b Bucket) mark(ctx context.Context) (m Mark, version string, err error) {
	r, info, err := b.Blobs.Get(ctx, record.OwnerKey, blob.GetOptions{Length: maxMark})
	if fault.Is(err, fault.NotFound) {
		return m, "", nil
	}
	if err != nil {
		return m, "", fault.Wrap(err, "read which installation owns the bucket")
	}
	defer r.Close() // read only: nothing can be lost
	text, err := io.ReadAll(r)
	if err != nil {
		return m, "", fault.Wrap(err, "read which installation owns the bucket")
	}
	if err := record.Decode(text, &m, b.Address(record.OwnerKey)); err != nil {
		return m, "", err
	}
	if m.Installation == "" {
		return m, "", &fault.Error{Kind: fault.Corrupt, Remedy: "remove it if no other installation uses the bucket",
			Err: fmt.Errorf("%s names no installation", b.Address(record.OwnerKey))}
	}
	return m, info.Version, nil
}

// write creates the mark, or replaces that version of it, and returns the one that the
// bucket has then.
func (b Bucket) write(ctx context.Context, id, version string) (Mark, error) {
	m := Mark{Schema: record.Schema, Installation: id, Place: b.Place, Host: b.Host,
		At: b.Clock.Now().UTC().Truncate(time.Second)}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return m, fault.WithKind(fault.Internal, err, "encode the owner of the bucket")
	}
	_, err = b.Blobs.Put(ctx, record.OwnerKey, strings.NewReader(string(text)+"\n"),
		blob.PutOptions{CreateOnly: version == "", IfVersion: version})
	if fault.Is(err, fault.Conflict) { // another installation, or another process of this one, was first
		if m, version, err = b.mark(ctx); err == nil && version == "" {
			err = fault.New(fault.Unavailable, "%s was removed while it was read", b.Address(record.OwnerKey))
		}
	}
	return m, fault.Wrap(err, "note that this installation owns the bucket")
}

// refuse returns the error of a bucket that belongs to another installation.
func (b Bucket) refuse(m Mark) error {
	return &fault.Error{Kind: fault.Invalid,
		Err: fmt.Errorf("the bucket of %s belongs to another installation: %s, since %s", b.Place, m.Place,
			m.At.Format(time.DateOnly)),
		Remedy: fmt.Sprintf("%s; if that installation is gone for good and this one takes over its bucket, remove %s",
			b.Remedy, b.Address(record.OwnerKey))}
}
