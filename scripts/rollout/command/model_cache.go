package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"rollout/scripts/rollout/progress"
	"rollout/shared/fault"
	"rollout/shared/figures"
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
			"a folder in a bucket (s3://bucket/folder, gs://bucket/folder). For llama.cpp, org/model:Q4_K_M takes the\n" +
			".gguf files of that tag, and org/model of a model without other weights those that llama.cpp itself takes.\n\n" +
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
	if err == nil && did.Revision != "" && !strings.Contains(did.Name, ":") { // llama.cpp takes none
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
		Name: m.name, Revision: m.revision, Key: stored.Key, Model: m.pool,
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
