package command

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"rollout/functions/api"
	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/installation"
	"rollout/shared/snapshot"
	"rollout/shared/text"
)

func snapshotCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "snapshot",
		Short: "List, show, restore and prune the snapshots of trainings",
		Args:  unknownCommand,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(snapshotListCommand(e), snapshotShowCommand(e), snapshotRestoreCommand(e), snapshotPruneCommand(e))
	return c
}

// openSnapshots opens an installation and its snapshots. The caller closes the installation.
func (e *Env) openSnapshots(
	c *cobra.Command, p installation.Location,
) (*installation.Installation, snapshot.Store, error) {
	in, err := e.open(c, p)
	if err != nil {
		return nil, snapshot.Store{}, err
	}
	return in, snapshot.Store{Blobs: in.Ports.Blobs, Docs: in.Ports.Docs, Clock: in.Ports.Clock}, nil
}

// findSnapshot returns the snapshot with that id or unique prefix of an id. It is Invalid if there is none.
func findSnapshot(ctx context.Context, s snapshot.Store, id string) (snapshot.Snapshot, error) {
	snap, err := s.Find(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return snap, &fault.Error{Kind: fault.Invalid, Err: err, Remedy: "`rollout snapshot list` lists the snapshots"}
	}
	return snap, err
}

// findSnapshotRun returns the run that text names: first by id or unique prefix among the runs that have snapshots,
// else as findRun does among all runs of the installation.
func findSnapshotRun(
	ctx context.Context, in *installation.Installation, s snapshot.Store, text string,
) (identity.RunID, error) {
	all, err := s.List(ctx, snapshot.Filter{})
	if err != nil {
		return "", err
	}
	var runs []status.Status
	for _, snap := range all {
		if !slices.ContainsFunc(runs, func(r status.Status) bool { return r.Run == snap.Run }) {
			runs = append(runs, status.Status{Run: snap.Run})
		}
	}
	r, err := matchRun(runs, text)
	if !fault.Is(err, fault.NotFound) {
		return r.Run, err
	}
	if r, err = findRun(ctx, api.New(in.Ports, in.Deployment, in.Profile), text); err != nil {
		return "", fault.WithKind(fault.Invalid, err, "--run")
	}
	return r.Run, nil
}

// writeJSON writes v as indented JSON and a newline.
func writeJSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fault.WithKind(fault.Internal, err, "write JSON")
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

const (
	runFlagHelp  = "a `run`: its id, a unique prefix of its id, or its name"
	snapshotHelp = "SNAPSHOT is a snapshot's id or a unique prefix of it."
)

func snapshotListCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List snapshots, newest first",
		Args:  arguments(0),
	}
	location := locationFlags(c)
	var f snapshot.Filter
	runName := c.Flags().String("run", "", "only snapshots of "+runFlagHelp)
	kind := c.Flags().String("kind", "", "only snapshots of this `kind`, such as train_state")
	c.Flags().StringVar(&f.Label, "label", "", "only snapshots whose label contains this `text`")
	c.Flags().IntVar(&f.Limit, "limit", 0, "only the newest `n` snapshots; 0 lists all")
	asJSON := c.Flags().Bool("json", false, "print a JSON array")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		if f.Limit < 0 {
			return usage(c, "--limit must not be negative")
		}
		in, store, err := e.openSnapshots(c, *location)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, in.Close()) }()
		f.Kind = snapshot.Kind(*kind)
		if *runName != "" {
			if f.Run, err = findSnapshotRun(c.Context(), in, store, *runName); err != nil {
				return err
			}
		}
		all, err := store.List(c.Context(), f)
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(e.Out, append([]snapshot.Snapshot{}, all...))
		}
		_, err = io.WriteString(e.Out, e.snapshotTable(all))
		return err
	}
	return c
}

// snapshotTable formats a table of snapshots, with complete ids for copying.
func (e *Env) snapshotTable(all []snapshot.Snapshot) string {
	if len(all) == 0 {
		return "no snapshots\n"
	}
	rows := [][]string{{"SNAPSHOT", "RUN", "MADE BY", "SIZE", "AGE", "LABEL"}}
	for _, s := range all {
		rows = append(rows, []string{
			s.ID, string(s.Run), s.Algorithm, size(s), progress.FormatDuration(e.Clock.Now().Sub(s.CreatedAt)),
			progress.SanitizeLine(s.Label, nameColumns),
		})
	}
	return terminal.Table(rows, e.palette(e.Out), func(_, _ int, cell string) string { return cell })
}

// size formats the size of all parts of a snapshot.
func size(s snapshot.Snapshot) string {
	var n int64
	for _, p := range s.Parts {
		n += p.Length
	}
	return humanize.IBytes(uint64(max(0, n)))
}

func snapshotShowCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "show SNAPSHOT",
		Short: "Show all facts about a snapshot",
		Long:  "Shows a snapshot's run, kind, size, metadata and files.\n\n" + snapshotHelp,
		Args:  arguments(0, "SNAPSHOT"),
	}
	location := locationFlags(c)
	asJSON := c.Flags().Bool("json", false, "print a JSON object")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		in, store, err := e.openSnapshots(c, *location)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, in.Close()) }()
		snap, err := findSnapshot(c.Context(), store, args[0])
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(e.Out, snap)
		}
		_, err = io.WriteString(e.Out, e.snapshotFacts(snap, in))
		return err
	}
	return c
}

// maxMetaShown is how much of a snapshot's metadata is shown, in bytes. --json has the rest, such as a curve.
const maxMetaShown = 200

// snapshotFacts formats a snapshot, one fact per line.
func (e *Env) snapshotFacts(s snapshot.Snapshot, in *installation.Installation) string {
	var b strings.Builder
	sc := screen{now: e.Clock.Now()}
	for _, f := range [][2]string{
		{"snapshot", s.ID},
		{"run", string(s.Run)},
		{"kind", string(s.Kind)},
		{"made by", s.Algorithm},
		{"label", progress.SanitizeLine(s.Label, snapshot.MaxLabel)},
		{"created", sc.moment(&s.CreatedAt)},
		{"size", size(s)},
		{"meta", text.Truncate(string(s.Meta), maxMetaShown, "…")},
	} {
		if f[1] != "" {
			b.WriteString(sc.fact(f[0], f[1]))
		}
	}
	for _, p := range s.Parts {
		if id, ok := identity.ParseContentID(p.Content); ok {
			b.WriteString(sc.fact(p.Role, progress.SanitizeLine(in.Path(identity.ContentKey(id)), 1000)))
		}
	}
	return b.String()
}

func snapshotRestoreCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "restore SNAPSHOT FOLDER",
		Short: "Write a snapshot's files into a new folder",
		Long: "Writes the snapshot's files into FOLDER, which must not exist. It appears after every byte is verified, or\n" +
			"not at all.\n\n" + snapshotHelp,
		Args: arguments(0, "SNAPSHOT", "FOLDER"),
	}
	location := locationFlags(c)
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		in, store, err := e.openSnapshots(c, *location)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, in.Close()) }()
		snap, err := findSnapshot(c.Context(), store, args[0])
		if err != nil {
			return err
		}
		if err := store.Restore(c.Context(), snap, args[1]); err != nil {
			return err
		}
		err = e.say("restored snapshot %s to %s", snap.ID, args[1])
		return err
	}
	return c
}
