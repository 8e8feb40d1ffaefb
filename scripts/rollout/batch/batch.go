// Package batch is `rollout infer batch`: one run over files of the user's
// own, with its state beside its output.
//
// It finds the run's id, pins copies of the inputs in the bucket, submits the
// run, and puts what came of it where the config says. The run itself is the
// product's: see package stack.
package batch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/oklog/ulid/v2"

	"rollout/functions/submit"
	"rollout/scripts/rollout/outfile"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/embedded/bucket"
	"rollout/shared/embedded/local"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/record"
)

// FindInputs are the files that the glob names, in order of their paths. A glob
// that names what the batch itself writes into the output folder is refused,
// before and after it is there.
func FindInputs(glob, outputDir string) ([]string, error) {
	if err := checkDisjoint(glob, outputDir); err != nil {
		return nil, err
	}
	found, err := doublestar.FilepathGlob(glob, doublestar.WithFilesOnly())
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "input.glob %q", glob)
	}
	var files []string
	for _, f := range found {
		if _, ok := input.Packing(f); !ok {
			return nil, &fault.Error{Kind: fault.Invalid, Op: "input.glob names " + f, Remedy: "prompts files end in .jsonl, .jsonl.gz or .jsonl.zst"}
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		return nil, noFile(glob)
	}
	slices.Sort(files)
	if err := fit(files); err != nil {
		return nil, fault.Wrap(err, "input.glob %q", glob)
	}
	return files, nil
}

// fit refuses more files than the documents of a run can name, before any of
// them is copied.
func fit(files []string) error {
	const most = document.MaxValue - 16<<10 // for what else they hold
	m := record.Manifest{Run: identity.RunID(strings.Repeat("0", 26))}
	for i, f := range files {
		packed, _ := input.Packing(f)
		m.Inputs = append(m.Inputs, record.Input{Key: uploadKey(m.Run, i, packed), Version: strings.Repeat("0", 48), Size: math.MaxInt32, Packed: packed, Name: f})
	}
	if n := len(record.Encode(m)); n > most {
		return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%d files are too many for a run: their names and places take %d KB, of %d", len(files), n>>10, most>>10),
			Remedy: "join files to larger ones (cat), or make several batches of them"}
	}
	return nil
}

// checkDisjoint refuses a batch whose next run would read its own answers.
func checkDisjoint(glob, outputDir string) error {
	pattern, err := filepath.Abs(glob)
	if err != nil {
		return fault.WithKind(fault.Invalid, err, "input.glob")
	}
	for _, name := range []string{record.CompletionsFile, record.ErrorsFile} {
		path, err := filepath.Abs(filepath.Join(outputDir, name))
		if err != nil {
			return fault.WithKind(fault.Invalid, err, "output.dir")
		}
		if match, err := doublestar.PathMatch(pattern, path); err == nil && match { // a bad pattern is told when it is used
			return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("input.glob %q also names %s, which the batch writes", glob, filepath.Join(outputDir, name)),
				Remedy: "choose a narrower pattern, or an output.dir elsewhere"}
		}
	}
	return nil
}

// noFile says where a glob was looked for: relative ones are relative to the
// folder of the process, not to the config's.
func noFile(glob string) error {
	remedy := "correct the pattern"
	if dir, err := os.Getwd(); err == nil && !filepath.IsAbs(glob) {
		remedy += ", or start rollout elsewhere: relative paths are relative to " + dir
	}
	return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("input.glob %q names no file", glob), Remedy: remedy}
}

// runIDFile remembers the run of an output folder.
const runIDFile = "run-id"

// ResolveRunID is the run to start or to go on with: resume if it is not empty, else
// what the output folder's run-id says, else a new one that is written there.
func ResolveRunID(outputDir, resume string) (identity.RunID, error) {
	if resume != "" {
		id := identity.RunID(resume)
		if !id.Valid() {
			return "", &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("--resume %q is no run id: that has 26 characters, such as 01JD2ZQ4T5W0M1X9YB7R3K8CVE", resume),
				Remedy: "leave --resume out to go on with the run of output.dir"}
		}
		return id, nil
	}
	path := filepath.Join(outputDir, runIDFile)
	b, err := os.ReadFile(path)
	if err == nil {
		id := identity.RunID(strings.TrimSpace(string(b)))
		if !id.Valid() {
			return "", &fault.Error{Kind: fault.Invalid, Op: path + " holds no run id", Remedy: "remove it to start a new run, or name the run with --resume"}
		}
		return id, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fault.WithKind(fault.Invalid, err, "read the run's id")
	}
	id := identity.RunID(ulid.Make().String())
	return id, writeWhole(path, []byte(string(id)+"\n"))
}

// writeWhole writes a file so that it is there whole or not at all.
func writeWhole(path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fault.WithKind(fault.Invalid, err, "make the folder of %s", path)
	}
	return outfile.Write(path, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}

// Batch is one run of `infer batch`.
type Batch struct {
	Local     *local.Local
	Config    config.Infer
	Files     []string
	Run       identity.RunID
	MustExist bool // it was named to be resumed
}

// CheckResumable checks a run that exists already against the config: a run goes on
// with the model, the sampling params and the files that it began with. A file
// that has gone since does not matter: the run has its copy.
func (b Batch) CheckResumable(ctx context.Context) error {
	m, found, err := b.manifest(ctx)
	switch {
	case err != nil:
		return err
	case !found && b.MustExist:
		return &fault.Error{Kind: fault.Invalid, Op: "there is no run " + string(b.Run) + " in " + b.Local.Dir, Remedy: "leave --resume out to start a run"}
	case !found:
		return nil
	}
	if want := identity.Model(b.Config.Model.URI, b.revision()).String(); m.ModelID != want {
		other := b.Config.Model.URI
		if other == m.ModelURI {
			other = "another revision of it"
		}
		return &fault.Error{Kind: fault.Invalid, Op: fmt.Sprintf("run %s was begun with the model %s and can't go on with %s", b.Run, m.ModelURI, other),
			Remedy: "name that model again, or another output.dir for a new run"}
	}
	if was, want := m.Config.Sampling.Canonical(), b.Config.Sampling.Canonical(); !bytes.Equal(was, want) {
		return &fault.Error{Kind: fault.Invalid, Op: fmt.Sprintf("run %s was begun with the sampling params %s and can't go on with %s", b.Run, was, want),
			Remedy: "set those again, or name another output.dir for a new run"}
	}
	return b.knownFiles(m)
}

// revision is the model's: the pool's, where it is known, else the config's.
func (b Batch) revision() string {
	for _, p := range b.Local.Deployment.Pools {
		if p.Model == b.Config.Model.URI && p.Revision != "" {
			return p.Revision
		}
	}
	return b.Config.Model.Revision
}

// knownFiles compares names without folders: the batch may be started from
// elsewhere.
func (b Batch) knownFiles(m record.Manifest) error {
	known := map[string]bool{}
	for _, in := range m.Inputs {
		known[filepath.Base(in.Label())] = true
	}
	for _, f := range b.Files {
		if !known[filepath.Base(f)] {
			return &fault.Error{Kind: fault.Invalid, Op: fmt.Sprintf("run %s was begun without the file %s", b.Run, f),
				Remedy: "leave it out of input.glob, or name another output.dir for a new run"}
		}
	}
	return nil
}

func (b Batch) manifest(ctx context.Context) (m record.Manifest, found bool, err error) {
	_, found, err = host.Load(ctx, b.Local.Ports.Docs, record.ManifestKey(b.Run), &m)
	return m, found, err
}

// Submit pins the inputs and creates the run, unless it exists.
func (b Batch) Submit(ctx context.Context, s *submit.Submitter) error {
	m, found, err := b.manifest(ctx)
	if err != nil {
		return err
	}
	if !found {
		m = record.Manifest{Run: b.Run, Name: filepath.Base(filepath.Clean(b.Config.Output.Dir))}
		for i, f := range b.Files {
			in, err := b.pin(ctx, i, f)
			if err != nil {
				return err
			}
			m.Inputs = append(m.Inputs, in)
		}
	}
	return s.Create(ctx, m, b.Config.Run())
}

// pin copies an input into the bucket: what the user does to the file later
// does not matter to the run.
func (b Batch) pin(ctx context.Context, i int, file string) (record.Input, error) {
	packed, _ := input.Packing(file)
	key := uploadKey(b.Run, i, packed)
	info, err := bucket.PutFile(ctx, b.Local.Bucket.Dir(), file, key)
	if err != nil {
		return record.Input{}, fault.Wrap(err, "copy %s", file)
	}
	return record.Input{Key: key, Version: info.Version, Size: info.Size, Packed: packed, Name: file}, nil
}

func uploadKey(run identity.RunID, i int, packed string) string {
	suffix := map[string]string{"": ".jsonl", input.Gzip: ".jsonl.gz", input.Zstd: ".jsonl.zst"}[packed]
	return fmt.Sprintf("%s%s/upload/%06d%s", record.WorkPrefix, run, i, suffix)
}

// Publish puts the run's files into the output folder.
func (b Batch) Publish(ctx context.Context) error {
	if err := os.MkdirAll(b.Config.Output.Dir, 0o755); err != nil {
		return fault.WithKind(fault.Invalid, err, "make output.dir")
	}
	for _, name := range []string{record.CompletionsFile, record.ErrorsFile, record.SummaryFile} {
		if err := b.publish(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (b Batch) publish(ctx context.Context, name string) error {
	r, err := input.OpenPinned(ctx, b.Local.Ports.Blobs, record.OutputKey(b.Run, name), "", 0, 0)
	if fault.Is(err, fault.NotFound) { // a run that was refused has a summary only
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	return outfile.Write(filepath.Join(b.Config.Output.Dir, name), func(w io.Writer) error {
		_, err := io.Copy(w, r)
		return err
	})
}
