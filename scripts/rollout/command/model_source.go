package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"rollout/shared/blob"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/servers"
	"rollout/shared/fault"
	"rollout/shared/hub"
	"rollout/shared/installation"
	"rollout/shared/models"
)

// modelFiles are the files of a model and where they come from.
type modelFiles struct {
	name, revision string
	pool           string // how a pool's config names a model of the hub
	files          []models.Listed
	from           models.Source
	close          func() error
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
	name, tag := models.SplitTag(name)
	h := hub.FromEnvironment(e.Getenv)
	found, err := h.Find(ctx, name, revision)
	if err != nil {
		return modelFiles{}, err
	}
	m := modelFiles{name: name, pool: name, close: func() error { return nil }}
	switch {
	case tag != "" || !r.all && found.OnlyGGUF():
		if found, err = r.onlyGGUF(found, tag); err != nil {
			return modelFiles{}, err
		}
		if m.name = models.Tagged(name, cmp.Or(tag, models.DefaultTag)); tag != "" {
			m.pool = m.name
		}
	case !r.all:
		found = found.Serving()
	}
	m.revision, m.files, m.from = found.Commit, found.Listed(), hub.Files{Hub: h, Model: found}
	return m, nil
}

// onlyGGUF returns the model with the files that llama.cpp takes for a tag; "" is its own
// choice.
func (r cacheRequest) onlyGGUF(m hub.Model, tag string) (hub.Model, error) {
	name := models.Tagged(m.Name, cmp.Or(tag, models.DefaultTag))
	if err := models.CheckTagged(name); err != nil {
		return m, err
	}
	if r.all {
		return m, fault.New(fault.Invalid, "--all is for models without a tag: %s means some of its files", r.uri)
	}
	if strings.Contains(r.uri, "@") {
		return m, &fault.Error{Kind: fault.Invalid,
			Err:    fmt.Errorf("%s is a model for llama.cpp, which takes the newest revision alone", m.Name),
			Remedy: "leave @ and the revision out, or add --all for another server"}
	}
	if tag == models.DefaultTag {
		tag = ""
	}
	paths := make([]string, 0, len(m.Files))
	for _, f := range m.Files {
		paths = append(paths, f.Path)
	}
	g, ok := servers.PickGGUF(paths, tag)
	if !ok {
		return m, &fault.Error{Kind: fault.Invalid,
			Err:    fmt.Errorf("%s has no .gguf file for llama.cpp of the tag %s", m.Name, cmp.Or(tag, "(none)")),
			Remedy: "name a tag that stands at the end of a file's name, such as org/model:Q4_K_M"}
	}
	return m.Only(g.Files()), nil
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
