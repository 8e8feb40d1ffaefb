package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/blob"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/hub"
	"rollout/shared/installation"
	"rollout/shared/models"
)

// cacheRequest is what `rollout model cache` was asked for.
type cacheRequest struct {
	uri, as  string
	all      bool // also the files that no server loads
	location installation.Location
}

// cached is the output of `model cache`, as its JSON shows it.
type cached struct {
	Name     string  `json:"name"`
	Revision string  `json:"revision,omitempty"` // the commit of the hub
	Key      string  `json:"key"`                // of its manifest
	Model    string  `json:"model,omitempty"`    // what a pool's config says to get it
	Files    int     `json:"files"`
	Bytes    int64   `json:"bytes"`
	NewBytes int64   `json:"new_bytes"` // that the bucket did not have
	Already  bool    `json:"already"`   // it was there
	Seconds  float64 `json:"seconds"`
}

func modelCacheCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "cache MODEL",
		Short: "Store a model in the bucket, for the machines",
		Long: "Stores a model in the installation's bucket, from where machines read it much faster than from the hub.\n" +
			"MODEL is a name of Hugging Face's hub (org/model, org/model@revision), a folder (./model), or the address of\n" +
			"a folder in a bucket (s3://bucket/folder, gs://bucket/folder).\n\n" +
			"Machines find a model of the hub by its name and commit. For another one, the command prints the address that\n" +
			"a pool's config names. A model of the hub that the first machine fetches is stored without this command.\n\n" +
			"A command that broke is repeated: it goes on with what is not stored yet. HF_TOKEN is the token for gated\n" +
			"models, and HF_ENDPOINT the address of a mirror of the hub.",
		Args: arguments(0, "MODEL"),
	}
	var r cacheRequest
	location := locationFlags(c)
	c.Flags().StringVar(&r.as, "name", "",
		"the `name` to list a model of a folder or bucket by (default: the folder's name)")
	c.Flags().BoolVar(&r.all, "all", false,
		"of the hub, also store the files that no server loads, such as other formats of the weights")
	asJSON := c.Flags().Bool("json", false, "print a JSON object")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		r.uri, r.location = args[0], *location
		in, err := e.open(c, r.location)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, in.Close()) }()
		if err := in.CheckOwner(c.Context()); err != nil {
			return err
		}
		did, err := e.cacheModel(c.Context(), in, r)
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(e.Out, did)
		}
		return e.sayCached(did)
	}
	return c
}

// sayCached prints what was done, and what a pool's config says to get the model.
func (e *Env) sayCached(did cached) error {
	size := humanize.IBytes(uint64(did.Bytes))
	if did.Already {
		if _, err := fmt.Fprintf(e.Out, "%s is in the bucket already: %s\n", title(did), size); err != nil {
			return err
		}
	} else {
		seconds := time.Duration(did.Seconds * float64(time.Second))
		_, err := fmt.Fprintf(e.Out, "%s is stored: %s of %s, %s new to the bucket, in %s\n", title(did), size,
			figures.Of(did.Files, "file"), humanize.IBytes(uint64(did.NewBytes)), progress.FormatDuration(seconds))
		if err != nil {
			return err
		}
	}
	if did.Model == "" {
		return nil
	}
	_, err := fmt.Fprintf(e.Out, "a pool's config names it so: model = %q", did.Model)
	if err == nil && did.Revision != "" {
		_, err = fmt.Fprintf(e.Out, ", revision = %q", did.Revision)
	}
	if err == nil {
		_, err = fmt.Fprintln(e.Out)
	}
	return err
}

func title(did cached) string {
	if did.Revision == "" {
		return did.Name
	}
	return fmt.Sprintf("%s at %.12s", did.Name, did.Revision)
}

// modelFiles are the files of a model and where they come from.
type modelFiles struct {
	name, revision string
	files          []models.Listed
	from           models.Source
	close          func() error
}

// cacheModel stores the model in the installation's bucket.
func (e *Env) cacheModel(ctx context.Context, in *installation.Installation, r cacheRequest) (cached, error) {
	began := e.Clock.Now()
	m, err := e.findModel(ctx, in, r)
	if err != nil {
		return cached{}, err
	}
	defer func() { _ = m.close() }() // it is only read
	var total int64
	for _, f := range m.files {
		total += f.Size
	}
	bar := e.transfer(e.Err, m.name, total)
	manifest, stored, err := models.Cache{Blobs: in.Ports.Blobs, Done: bar.Add}.
		Store(ctx, m.name, m.revision, m.files, m.from)
	bar.Close()
	if fault.Is(err, fault.Denied) && fault.RemedyOf(err) == "" {
		err = &fault.Error{Kind: fault.Denied, Err: err,
			Remedy: "it takes the rights of a person who may submit runs; see the README of infra/" + in.Cloud}
	}
	if err == nil {
		err = lacking(m, manifest)
	}
	if err != nil {
		return cached{}, err
	}
	did := cached{
		Name: m.name, Revision: m.revision, Key: stored.Key, Model: m.name,
		Files: len(manifest.Files), Bytes: manifest.Size(), NewBytes: stored.New, Already: stored.Already,
		Seconds: e.Clock.Now().Sub(began).Seconds(),
	}
	switch {
	case in.Cloud == "":
		did.Model = "" // it starts no machines
	case m.revision == "":
		did.Model = in.Path(stored.Key)
	}
	return did, nil
}

// lacking is a Conflict if the bucket's copy lacks files that the user asked for: a machine
// stores those of its server alone, and no copy is ever changed.
func lacking(m modelFiles, there models.Manifest) error {
	has := make(map[string]bool, len(there.Files))
	for _, f := range there.Files {
		has[f.Path] = true
	}
	var lacks []string
	for _, f := range m.files {
		if !has[f.Path] {
			lacks = append(lacks, f.Path)
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	return &fault.Error{Kind: fault.Conflict,
		Err: fmt.Errorf("the bucket's copy of %s at %.12s has %s and lacks %d of the %d that you ask for, such as %.128q",
			m.name, m.revision, figures.Of(len(there.Files), "file"), len(lacks), len(m.files), slices.Min(lacks)),
		Remedy: fmt.Sprintf("remove it with `rollout model rm %s@%.12s` and cache it again", m.name, m.revision)}
}

// findModel finds the files of the model that the user names.
func (e *Env) findModel(ctx context.Context, in *installation.Installation, r cacheRequest) (modelFiles, error) {
	if strings.Contains(r.uri, "://") {
		return e.modelOfBucket(ctx, in, r)
	}
	if r.isFolder() {
		return modelOfFolder(r)
	}
	if r.as != "" {
		return modelFiles{}, fault.New(fault.Invalid, "--name is for a folder or a bucket: a model of the hub has a name")
	}
	name, revision, _ := strings.Cut(r.uri, "@")
	h := hub.FromEnvironment(e.Getenv)
	found, err := h.Find(ctx, name, revision)
	if err != nil {
		return modelFiles{}, err
	}
	if !r.all {
		found = found.Serving()
	}
	return modelFiles{name: name, revision: found.Commit, files: found.Listed(), from: hub.Files{Hub: h, Model: found},
		close: func() error { return nil }}, nil
}

// isFolder reports whether the user names a folder: by a path, or by a name that can't be
// the hub's.
func (r cacheRequest) isFolder() bool {
	if strings.HasPrefix(r.uri, "/") || strings.HasPrefix(r.uri, ".") {
		return true
	}
	name, _, _ := strings.Cut(r.uri, "@")
	info, err := os.Stat(r.uri)
	return models.CheckName(name) != nil && err == nil && info.IsDir()
}

func modelOfFolder(r cacheRequest) (modelFiles, error) {
	absolute, err := filepath.Abs(r.uri)
	if err != nil {
		return modelFiles{}, fault.WithKind(fault.Invalid, err, "find the folder")
	}
	name, err := r.name(filepath.Base(absolute))
	if err != nil {
		return modelFiles{}, err
	}
	folder, err := models.OpenFolder(r.uri)
	if err != nil {
		return modelFiles{}, err
	}
	files, err := folder.List()
	if err != nil {
		return modelFiles{}, errors.Join(err, folder.Close())
	}
	return modelFiles{name: name, files: files, from: folder, close: folder.Close}, nil
}

// name returns the model's name: the user's, or one that the source suggests.
func (r cacheRequest) name(suggested string) (string, error) {
	if r.as != "" {
		suggested = r.as
	}
	err := models.CheckName(suggested)
	if err != nil && r.as == "" {
		return "", &fault.Error{Kind: fault.Invalid, Err: err, Remedy: "give it one with --name"}
	}
	return suggested, err
}

// modelOfBucket finds a model in a bucket of the installation's cloud, with the user's own
// rights.
func (e *Env) modelOfBucket(ctx context.Context, in *installation.Installation, r cacheRequest) (modelFiles, error) {
	bucket, folder := config.Pool{Model: r.uri}.ModelBucket()
	scheme, _, _ := strings.Cut(in.Path(""), "://")
	if in.Cloud == "" || !strings.HasPrefix(r.uri, scheme+"://") {
		return modelFiles{}, &fault.Error{Kind: fault.Invalid,
			Err:    fmt.Errorf("%s is not an address of a bucket of this installation's cloud", r.uri),
			Remedy: "name one of its own cloud with --cloud, or fetch the files and name their folder"}
	}
	if bucket == "" || folder == "" {
		return modelFiles{}, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s names no folder", r.uri),
			Remedy: "write such as " + scheme + "://BUCKET/FOLDER"}
	}
	name, err := r.name(folder[strings.LastIndexByte(folder, '/')+1:])
	if err != nil {
		return modelFiles{}, err
	}
	provider, err := installation.ProviderOf(in.Cloud)
	if err != nil {
		return modelFiles{}, err
	}
	blobs, err := e.openBucket(ctx, provider, in.Deployment, bucket)
	if err != nil {
		return modelFiles{}, err
	}
	source := models.Objects{Blobs: blobs, Folder: folder}
	files, err := source.List(ctx)
	return modelFiles{name: name, files: files, from: source, close: func() error { return nil }}, err
}

// openBucket opens any bucket of the provider with the user's own rights.
func (e *Env) openBucket(
	ctx context.Context, provider cloud.Provider, d config.Deployment, bucket string,
) (blob.Store, error) {
	d.Bucket = bucket
	d.Cloud.S3.Bucket, d.Cloud.S3.Prefix = bucket, ""
	d.Cloud.GCS.Bucket, d.Cloud.GCS.Prefix = bucket, ""
	in, err := provider.Open(ctx, d, cloud.Options{Source: "models", Clock: e.Clock})
	if err != nil {
		return nil, err
	}
	return in.Stores().Ports.Blobs, nil
}

func modelListCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List the models in the bucket", Args: arguments(0),
		Long: "Lists the models that are stored in the installation's bucket, by `rollout model cache` or by a machine.",
	}
	location := locationFlags(c)
	asJSON := c.Flags().Bool("json", false, "print a JSON array")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		in, err := e.open(c, *location)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, in.Close()) }()
		all, err := models.Cache{Blobs: in.Ports.Blobs}.List(c.Context())
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(e.Out, append([]models.Entry{}, all...))
		}
		if len(all) == 0 {
			_, err = fmt.Fprintln(e.Out, "no models")
			return err
		}
		rows := [][]string{{"MODEL", "REVISION", "FILES", "SIZE", "AGE"}}
		for _, m := range all {
			size, files := humanize.IBytes(uint64(m.Bytes)), figures.Count(m.Files)
			if m.Problem != "" {
				size, files = "damaged", "-"
			}
			rows = append(rows, []string{progress.SanitizeLine(m.Name, nameColumns), shown(m), files, size,
				progress.FormatDuration(e.Clock.Now().Sub(m.StoredAt))})
		}
		_, err = fmt.Fprint(e.Out, terminal.Table(rows, e.palette(e.Out), func(_, _ int, cell string) string { return cell }))
		return err
	}
	return c
}

// shown is how the list names a model's revision: the commit of the hub, or the beginning
// of the id of another model's files.
func shown(m models.Entry) string {
	if m.Revision != "" {
		return m.Revision
	}
	id := strings.TrimSuffix(m.Key[strings.LastIndexByte(m.Key, '/')+1:], ".json")
	return id[:min(len(id), 40)]
}

func modelRemoveCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "rm MODEL[@REVISION]", Short: "Remove a model from the bucket", Args: arguments(0, "MODEL"),
		Long: "Removes a model from the installation's bucket, as `rollout model list` names it: all of its revisions, or\n" +
			"those that begin with REVISION. What other models share with it stays.\n\n" +
			"Machines that work go on. Later ones fetch a model of the hub from there; a pool whose model only the bucket\n" +
			"has can start no machine. Where the bucket keeps versions, its lifecycle deletes the bytes after 30 days.",
	}
	location := locationFlags(c)
	asJSON := c.Flags().Bool("json", false, "print a JSON object")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		in, err := e.open(c, *location)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, in.Close()) }()
		cache := models.Cache{Blobs: in.Ports.Blobs}
		all, err := cache.List(c.Context())
		if err != nil {
			return err
		}
		name, revision, _ := strings.Cut(args[0], "@")
		all = slices.DeleteFunc(all, func(m models.Entry) bool {
			return m.Name != name || !strings.HasPrefix(shown(m), revision)
		})
		if len(all) == 0 {
			return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("the bucket has no model %s", args[0]),
				Remedy: "`rollout model list` lists the models"}
		}
		keys := make([]string, 0, len(all))
		for _, m := range all {
			keys = append(keys, m.Key)
		}
		removed, err := cache.Remove(c.Context(), keys, e.Clock.Now())
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(e.Out, removed)
		}
		_, err = fmt.Fprintf(e.Out, "removed %s: %s\n", figures.Of(removed.Models, "model"),
			humanize.IBytes(uint64(removed.Bytes)))
		return err
	}
	return c
}
