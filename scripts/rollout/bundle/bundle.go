package bundle

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/gzip"

	"rollout/functions/api"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
)

// Options say what to pack.
type Options struct {
	Ports      host.Ports
	Service    *api.Service
	Deployment config.Deployment
	Run        identity.RunID
	WithIDs    bool     // show the items' own ids as they are
	Logs       []string // files whose ends to pack
	Secrets    []string // values that must not be shown, wherever they stand
	Version    Version
	Machine    any // facts of the machine, as JSON
}

// Version is the program that made the bundle.
type Version struct {
	Rollout string `json:"rollout"`
	Go      string `json:"go"`
	System  string `json:"system"` // Example: "linux/amd64"
}

// Entry is one file of a bundle.
type Entry struct {
	Name string
	What string
	Size int
}

// file is an entry in the making.
type file struct {
	name, what string
	make       func(context.Context) ([]byte, error)
}

// Write packs the bundle into w, as a compressed tar, and returns what is in
// it. What can't be read is left out, and said in problems.txt: a bundle is
// wanted most when something is broken.
func Write(ctx context.Context, w io.Writer, o Options) ([]Entry, error) {
	if _, err := o.Service.Show(ctx, o.Run); fault.Is(err, fault.NotFound) {
		return nil, err
	}
	z := gzip.NewWriter(w)
	p := packer{Options: o, tar: tar.NewWriter(z), now: o.Ports.Clock.Now().UTC()}
	var problems bytes.Buffer
	for _, f := range p.files() {
		b, err := f.make(ctx)
		if ctx.Err() != nil {
			return p.entries, fault.WithKind(fault.Canceled, ctx.Err(), "pack %s", f.name)
		}
		if err != nil {
			fmt.Fprintf(&problems, "%s: %v\n", f.name, err)
			continue
		}
		if len(b) == 0 {
			continue
		}
		if err := p.add(f, b); err != nil {
			return p.entries, err
		}
	}
	if problems.Len() > 0 {
		if err := p.add(file{name: "problems.txt", what: "what could not be read"}, problems.Bytes()); err != nil {
			return p.entries, err
		}
	}
	if err := p.add(file{name: "README.txt", what: "this list"}, p.readme()); err != nil {
		return p.entries, err
	}
	return p.entries, fault.Wrap(errors.Join(p.tar.Close(), z.Close()), "write the bundle")
}

// packer is one bundle being written.
type packer struct {
	Options
	tar     *tar.Writer
	now     time.Time
	entries []Entry
}

// add writes one file, with every secret that stands in it replaced.
func (p *packer) add(f file, b []byte) error {
	for _, s := range p.Secrets {
		if s != "" {
			b = bytes.ReplaceAll(b, []byte(s), []byte("***"))
		}
	}
	h := &tar.Header{Name: "rollout-" + string(p.Run) + "/" + f.name, Mode: 0o600, Size: int64(len(b)), ModTime: p.now, Format: tar.FormatPAX}
	if err := p.tar.WriteHeader(h); err != nil {
		return fault.WithKind(fault.Unavailable, err, "write %s of the bundle", f.name)
	}
	if _, err := p.tar.Write(b); err != nil {
		return fault.WithKind(fault.Unavailable, err, "write %s of the bundle", f.name)
	}
	p.entries = append(p.entries, Entry{f.name, f.what, len(b)})
	return nil
}

func (p *packer) readme() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Support bundle of run %s, made at %s by rollout %s.\n\n", p.Run, p.now.Format(time.RFC3339), p.Version.Rollout)
	ids := "the items' own ids are hashed"
	if p.WithIDs {
		ids = "the items' own ids are shown as they are"
	}
	fmt.Fprintf(&b, "It holds no prompt, no answer, no message of a failed item and no secret; %s.\nFile names, config and host names are in it: look before you send it.\n\n", ids)
	for _, e := range p.entries {
		fmt.Fprintf(&b, "%-24s %s (%d bytes)\n", e.Name, e.What, e.Size)
	}
	return b.Bytes()
}

// indented renders v for people.
func indented(v any) ([]byte, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	return append(b, '\n'), fault.WithKind(fault.Internal, err, "encode")
}

// lines renders one value a line.
type lines struct{ b bytes.Buffer }

func (l *lines) add(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fault.WithKind(fault.Internal, err, "encode")
	}
	l.b.Write(append(b, '\n'))
	return nil
}
