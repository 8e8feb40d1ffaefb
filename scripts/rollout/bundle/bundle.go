// Package bundle packs a support bundle: one archive with what others need to debug a run, such as documents, config,
// queues, machine facts and the ends of logs.
//
// It never packs prompts, completions or secrets. Of a failed item it packs index, line and class, its id only as a
// hash unless asked otherwise, and no message, because servers repeat prompts in their messages. It changes nothing
// except the order of dead letters. Its memory and the size of the archive are bounded, however large the run is.
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
	WithIDs    bool     // include the items' own ids unhashed
	Logs       []string // log and event files whose ends to pack
	Secrets    []string // secret values, which are replaced by *** in all files
	Version    Version
	Machine    any // facts about the machine, encoded as JSON
}

// Version identifies the program that made the bundle.
type Version struct {
	Rollout string `json:"rollout"`
	Go      string `json:"go"`
	System  string `json:"system"` // Example: "linux/amd64"
}

// Entry describes one file of a bundle.
type Entry struct {
	Name        string
	Description string
	Size        int // bytes
}

// file is a file to pack. make returns its content; empty content is left out.
type file struct {
	name, description string
	make              func(context.Context) ([]byte, error)
}

// Write packs the bundle into w as a gzip-compressed tar and returns its entries. A file that cannot be read is left
// out and listed in problems.txt, because bundles are most needed when something is broken. It is NotFound if the run
// does not exist.
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
		f := file{name: "problems.txt", description: "files that could not be read"}
		if err := p.add(f, problems.Bytes()); err != nil {
			return p.entries, err
		}
	}
	if err := p.add(file{name: "README.txt", description: "this list"}, p.readme()); err != nil {
		return p.entries, err
	}
	return p.entries, fault.Wrap(errors.Join(p.tar.Close(), z.Close()), "write the bundle")
}

// packer writes one bundle.
type packer struct {
	Options
	tar     *tar.Writer
	now     time.Time
	entries []Entry
}

// add writes one file with all secrets replaced.
func (p *packer) add(f file, b []byte) error {
	for _, s := range p.Secrets {
		if s != "" {
			b = bytes.ReplaceAll(b, []byte(s), []byte("***"))
		}
	}
	h := &tar.Header{Name: "rollout-" + string(p.Run) + "/" + f.name, Mode: 0o600, Size: int64(len(b)),
		ModTime: p.now, Format: tar.FormatPAX}
	if err := p.tar.WriteHeader(h); err != nil {
		return fault.WithKind(fault.Unavailable, err, "write %s of the bundle", f.name)
	}
	if _, err := p.tar.Write(b); err != nil {
		return fault.WithKind(fault.Unavailable, err, "write %s of the bundle", f.name)
	}
	p.entries = append(p.entries, Entry{f.name, f.description, len(b)})
	return nil
}

func (p *packer) readme() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Support bundle of run %s, made at %s by rollout %s.\n\n",
		p.Run, p.now.Format(time.RFC3339), p.Version.Rollout)
	ids := "The items' own ids are hashed."
	if p.WithIDs {
		ids = "The items' own ids are included."
	}
	fmt.Fprintf(&b, "It contains no prompts, completions, messages of failed items or secrets. %s\n"+
		"It contains file names, config and host names: check them before you send it.\n\n", ids)
	for _, e := range p.entries {
		fmt.Fprintf(&b, "%-24s %s (%d bytes)\n", e.Name, e.Description, e.Size)
	}
	return b.Bytes()
}

// indented encodes v as indented JSON.
func indented(v any) ([]byte, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	return append(b, '\n'), fault.WithKind(fault.Internal, err, "encode")
}

// lines collects values as JSON lines.
type lines struct{ b bytes.Buffer }

func (l *lines) add(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fault.WithKind(fault.Internal, err, "encode")
	}
	l.b.Write(append(b, '\n'))
	return nil
}
