package command

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/models"
)

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
		if model, tag := models.SplitTag(name); tag != "" {
			name = models.Tagged(model, tag)
		}
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
