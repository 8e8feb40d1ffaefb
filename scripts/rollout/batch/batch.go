// Package batch implements `rollout infer batch`: one run over the user's own files, with its state next to its output.
//
// It finds the input files and the run id, copies the inputs into the bucket, submits the run, and copies the results
// into the configured output folder. Package standalone executes the run itself. The package never changes an input
// file.
package batch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/bmatcuk/doublestar/v4"
	"github.com/oklog/ulid/v2"
	"golang.org/x/sync/errgroup"

	"rollout/functions/submit"
	"rollout/scripts/rollout/outfile"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/disk"
	"rollout/shared/embedded/bucket"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/installation"
	"rollout/shared/record"
)

// FindInputs returns the files that match the glob, sorted by path. It is Invalid if the glob matches no file, a file
// that is not a prompts file, more files than a run can hold, or the files that the batch writes into outputDir,
// whether or not they exist yet.
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
			return nil, &fault.Error{Kind: fault.Invalid,
				Op:     fmt.Sprintf("input.glob matches %s, which is not a prompts file by its name", f),
				Remedy: input.NameRemedy(f)}
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		return nil, noMatch(glob)
	}
	slices.Sort(files)
	if err := checkCount(files); err != nil {
		return nil, fault.Wrap(err, "input.glob %q", glob)
	}
	return files, nil
}

// checkCount refuses more files than a run can have, before any of them is copied. It assumes the largest possible
// version and size of each file.
func checkCount(files []string) error {
	run := identity.RunID(strings.Repeat("0", 26))
	inputs := make([]record.Input, len(files))
	for i, f := range files {
		packed, _ := input.Packing(f)
		inputs[i] = record.Input{Key: uploadKey(run, i, packed), Version: strings.Repeat("0", 48), Size: math.MaxInt64,
			Packed: packed, Name: f}
	}
	return record.CheckInputs(inputs)
}

// checkDisjoint refuses a glob that matches the batch's own results: the next start would read them as prompts.
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
		// FindInputs reports a malformed pattern when it expands it.
		if match, err := doublestar.PathMatch(pattern, path); err == nil && match {
			return &fault.Error{
				Kind: fault.Invalid,
				Err: fmt.Errorf("input.glob %q also matches %s, which the batch writes",
					glob, filepath.Join(outputDir, name)),
				Remedy: "choose a narrower pattern, or another output.dir",
			}
		}
	}
	return nil
}

// noMatch returns the error of a glob without matches. It names the working directory, because relative patterns are
// relative to it and not to the config file.
func noMatch(glob string) error {
	remedy := "correct the pattern"
	if dir, err := os.Getwd(); err == nil && !filepath.IsAbs(glob) {
		remedy += ", or start rollout in another folder: relative paths are relative to " + dir
	}
	return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("input.glob %q matches no file", glob), Remedy: remedy}
}

// ResolveRunID returns the run to start or to continue: resume if it is not empty, else the id in the output folder's
// run-id file, else a new id, which it writes to that file.
func ResolveRunID(outputDir, resume string) (identity.RunID, error) {
	if resume != "" {
		id := identity.RunID(resume)
		if !id.Valid() {
			return "", &fault.Error{
				Kind:   fault.Invalid,
				Err:    fmt.Errorf("--resume %q is not a run id (26 characters, such as 01JD2ZQ4T5W0M1X9YB7R3K8CVE)", resume),
				Remedy: "leave --resume out to continue the run of output.dir",
			}
		}
		return id, nil
	}
	id, err := outfile.ReadRunID(outputDir)
	if err != nil || id != "" {
		return id, err
	}
	if err := makeDir(outputDir); err != nil {
		return "", err
	}
	id = identity.RunID(ulid.Make().String())
	return id, outfile.WriteRunID(outputDir, id)
}

// WriteDeployment writes the rollout.toml that corresponds to the batch config into the installation's folder, so that
// worker processes and `rollout status` read the same settings.
func WriteDeployment(dir string, c config.Infer) error {
	d := struct {
		SchemaVersion int           `toml:"schema_version"`
		Health        config.Health `toml:"health"`
		Worker        config.Worker `toml:"worker"`
		Engine        config.Engine `toml:"engine"`
		Secrets       []string      `toml:"secrets,omitempty"`
		Pools         []config.Pool `toml:"pool"`

		Graders map[string]config.GraderService `toml:"graders,omitempty"`
		Plugins map[string]config.Plugin        `toml:"plugins,omitempty"`
		Storage config.WorkStorage              `toml:"storage"`
	}{config.SchemaVersion, c.Health, c.Worker, c.Engine, c.Secrets(),
		[]config.Pool{{Name: "default", Model: c.Model.URI}}, c.Graders, c.Plugins,
		config.WorkStorage{KeepWork: c.Storage.KeepWork}}
	var b bytes.Buffer
	b.WriteString("# Written by `rollout infer batch` from its own config at every start.\n")
	if err := toml.NewEncoder(&b).Encode(d); err != nil {
		return fault.WithKind(fault.Internal, err, "encode the installation's config")
	}
	if err := makeDir(dir); err != nil {
		return err
	}
	return outfile.WriteBytes(filepath.Join(dir, installation.DeploymentFile), b.Bytes())
}

func makeDir(dir string) error {
	return fault.WithKind(fault.Invalid, disk.MakeFolder(disk.System{}, dir), "create folder %s", dir)
}

// Batch is one run of `rollout infer batch`.
type Batch struct {
	Local     *installation.Local
	Config    config.Infer
	Files     []string
	Run       identity.RunID
	MustExist bool // the user named the run with --resume
}

// CheckResumable compares an existing run with the config. It is Invalid if the run started with another model, other
// sampling parameters, without one of the files, or with other bytes in one. A file of the run that is missing now does
// not matter: the bucket has a copy. A run that does not exist is Invalid only if MustExist is set.
func (b Batch) CheckResumable(ctx context.Context) error {
	m, found, err := b.manifest(ctx)
	switch {
	case err != nil:
		return err
	case !found && b.MustExist:
		return &fault.Error{Kind: fault.Invalid, Op: fmt.Sprintf("there is no run %s in %s", b.Run, b.Local.Dir),
			Remedy: "leave --resume out to start a run"}
	case !found:
		return nil
	}
	if want := identity.Model(b.Config.Model.URI, b.revision()).String(); m.ModelID != want {
		other := b.Config.Model.URI
		if other == m.ModelURI {
			other = "another revision of it"
		}
		return &fault.Error{Kind: fault.Invalid,
			Op:     fmt.Sprintf("run %s started with model %s and cannot continue with %s", b.Run, m.ModelURI, other),
			Remedy: "configure that model again, or another output.dir for a new run"}
	}
	if old, now := m.Config.Sampling.Canonical(), b.Config.Sampling.Canonical(); !bytes.Equal(old, now) {
		return &fault.Error{Kind: fault.Invalid,
			Op:     fmt.Sprintf("run %s started with the sampling parameters %s and cannot continue with %s", b.Run, old, now),
			Remedy: "configure the former ones again, or another output.dir for a new run"}
	}
	if old, now := m.Config.Request.Canonical(), b.Config.Request.Canonical(); !bytes.Equal(old, now) {
		return &fault.Error{Kind: fault.Invalid,
			Op:     fmt.Sprintf("run %s started with the [request] %s and cannot continue with %s", b.Run, old, now),
			Remedy: "configure the former one again, or another output.dir for a new run"}
	}
	return b.checkFiles(ctx, m)
}

// revision returns the model's revision: the pool's if it is known, else the config's.
func (b Batch) revision() string {
	for _, p := range b.Local.Deployment.Pools {
		if p.Model == b.Config.Model.URI && p.Revision != "" {
			return p.Revision
		}
	}
	return b.Config.Model.Revision
}

func (b Batch) manifest(ctx context.Context) (m record.Manifest, found bool, err error) {
	m, err = host.LoadManifest(ctx, b.Local.Ports.Docs, b.Run)
	if errors.Is(err, host.ErrNoRun) && !host.IsExpired(err) {
		return m, false, nil
	}
	return m, err == nil, err
}

// Submit copies the inputs into the bucket and creates the run, unless it exists already.
func (b Batch) Submit(ctx context.Context, s *submit.Submitter) error {
	m, found, err := b.manifest(ctx)
	if err != nil {
		return err
	}
	if !found {
		m = record.Manifest{Run: b.Run, Name: filepath.Base(filepath.Clean(b.Config.Output.Dir))}
		if m.Inputs, err = b.copyInputs(ctx); err != nil {
			return err
		}
	}
	return s.Create(ctx, m, b.Config.Run())
}

// copiesAtOnce is how many files are copied side by side: small ones wait for their synced writes.
const copiesAtOnce = 8

// copyInputs copies the input files into the bucket.
func (b Batch) copyInputs(ctx context.Context) ([]record.Input, error) {
	inputs := make([]record.Input, len(b.Files))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(copiesAtOnce)
	for i, f := range b.Files {
		group.Go(func() (err error) {
			if err = ctx.Err(); err == nil {
				inputs[i], err = b.copyInput(ctx, i, f)
			}
			return err
		})
	}
	return inputs, group.Wait()
}

// copyInput copies an input file into the bucket, so that later changes of the file do not affect the run.
func (b Batch) copyInput(ctx context.Context, i int, file string) (record.Input, error) {
	packed, _ := input.Packing(file)
	key := uploadKey(b.Run, i, packed)
	info, err := bucket.PutFile(ctx, b.Local.Bucket.Dir(), file, key, blob.PutOptions{})
	if err != nil {
		return record.Input{}, fault.Wrap(err, "copy %s", file)
	}
	return record.Input{Key: key, Version: info.Version, Size: info.Size, Packed: packed, Name: file}, nil
}

// copiesPerFolder is how many copies share a folder of the bucket, which each copy lists.
const copiesPerFolder = 500

// uploadKey returns the object key of the copy of the i-th input file.
func uploadKey(run identity.RunID, i int, packed string) string {
	return fmt.Sprintf("%s%s/upload/%d/%06d%s", record.WorkPrefix, run, i/copiesPerFolder, i, input.Suffix(packed))
}

// Publish copies the run's completions, errors and summary into the output folder. It replaces files of an earlier
// Publish. Each file appears complete or not at all.
func (b Batch) Publish(ctx context.Context) error {
	if err := makeDir(b.Config.Output.Dir); err != nil {
		return err
	}
	for _, name := range []string{record.CompletionsFile, record.ErrorsFile, record.SummaryFile} {
		if err := b.publish(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (b Batch) publish(ctx context.Context, name string) error {
	r, err := input.OpenPinned(ctx, b.Local.Ports.Blobs, record.OutputKey(b.Run, name), blob.GetOptions{})
	if fault.Is(err, fault.NotFound) { // a refused run has only a summary
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close() // opened for reading: closing loses nothing
	return outfile.Write(filepath.Join(b.Config.Output.Dir, name), func(w io.Writer) error {
		_, err := io.Copy(w, r)
		return err
	})
}
