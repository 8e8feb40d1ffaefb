package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"rollout/functions/api"
	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/shared/cloud"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/installation"
	"rollout/shared/snapshot"
)

func snapshotCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "snapshot",
		Short: "List, show, restore and prune what trainings can go on from",
		Args:  unknownCommand,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(snapshotListCommand(e), snapshotShowCommand(e), snapshotRestoreCommand(e), snapshotPruneCommand(e))
	return c
}

// openSnapshots opens an installation's snapshots.
func (e *Env) openSnapshots(c *cobra.Command, dir string) (*installation.Local, snapshot.Store, func() error, error) {
	l, closeAll, err := e.openLocal(c, dir)
	if err != nil {
		return nil, snapshot.Store{}, nil, err
	}
	return l, snapshot.Store{Blobs: l.Ports.Blobs, Docs: l.Ports.Docs, Clock: l.Ports.Clock}, closeAll, nil
}

// findSnapshot returns the snapshot that a user names. That there is none is an
// error of the command line.
func findSnapshot(ctx context.Context, s snapshot.Store, id string) (snapshot.Snapshot, error) {
	snap, err := s.Find(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return snap, &fault.Error{Kind: fault.Invalid, Err: err, Remedy: "`rollout snapshot list` shows which there are"}
	}
	return snap, err
}

// runOfSnapshots returns the run that a user names: by its id or an
// unambiguous beginning of it, among the runs that have snapshots, else as for
// every other command.
func runOfSnapshots(ctx context.Context, l *installation.Local, s snapshot.Store, text string) (identity.RunID, error) {
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
	runs, err = api.New(l.Ports, l.Deployment, cloud.OneMachine()).List(ctx)
	if err != nil {
		return "", err
	}
	if r, err = matchRun(runs, text); err != nil {
		return "", fault.WithKind(fault.Invalid, err, "--run")
	}
	return r.Run, nil
}

func writeJSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fault.WithKind(fault.Internal, err, "write JSON")
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

const runFlagHelp = "a run's id, an unambiguous `beginning` of it, or its name"

func snapshotListCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List snapshots, the newest first",
		Args:  arguments(0),
	}
	dir := dirFlag(c)
	var f snapshot.Filter
	runName := c.Flags().String("run", "", "only those of a run: "+runFlagHelp)
	kind := c.Flags().String("kind", "", "only those of a `kind`, such as train_state")
	c.Flags().StringVar(&f.Label, "label", "", "only those with this `text` in their label")
	c.Flags().IntVar(&f.Limit, "limit", 0, "only the newest `n`; 0 is all")
	asJSON := c.Flags().Bool("json", false, "print a JSON array")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		if f.Limit < 0 {
			return usage(c, "--limit must not be negative")
		}
		l, store, closeAll, err := e.openSnapshots(c, *dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeAll()) }()
		f.Kind = snapshot.Kind(*kind)
		if *runName != "" {
			if f.Run, err = runOfSnapshots(c.Context(), l, store, *runName); err != nil {
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

// snapshotTable is a table of snapshots: whole ids, to be copied.
func (e *Env) snapshotTable(all []snapshot.Snapshot) string {
	if len(all) == 0 {
		return "no snapshots\n"
	}
	rows := [][]string{{"SNAPSHOT", "RUN", "MADE BY", "SIZE", "AGE", "LABEL"}}
	for _, s := range all {
		rows = append(rows, []string{s.ID, string(s.Run), s.Algorithm, size(s), progress.FormatDuration(e.Clock.Now().Sub(s.CreatedAt)), progress.SanitizeLine(s.Label, nameColumns)})
	}
	sc := screen{colours: palette(progress.SupportsANSI(e.Out) && e.Getenv("NO_COLOR") == "")}
	return sc.table(rows, func(_, _ int, cell string) string { return cell })
}

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
		Short: "Show all that is known of a snapshot",
		Long:  "SNAPSHOT is a snapshot's id, or an unambiguous beginning of it.",
		Args:  arguments(0, "SNAPSHOT"),
	}
	dir := dirFlag(c)
	asJSON := c.Flags().Bool("json", false, "print a JSON object")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		_, store, closeAll, err := e.openSnapshots(c, *dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeAll()) }()
		snap, err := findSnapshot(c.Context(), store, args[0])
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(e.Out, snap)
		}
		_, err = io.WriteString(e.Out, e.snapshotFacts(snap, *dir))
		return err
	}
	return c
}

// snapshotFacts renders a snapshot, a fact a line.
func (e *Env) snapshotFacts(s snapshot.Snapshot, dir string) string {
	var b strings.Builder
	sc := screen{now: e.Clock.Now()}
	for _, f := range [][2]string{
		{"snapshot", s.ID}, {"run", string(s.Run)}, {"kind", string(s.Kind)}, {"made by", s.Algorithm}, {"label", progress.SanitizeLine(s.Label, snapshot.MaxLabel)},
		{"created", sc.moment(&s.CreatedAt)}, {"size", size(s)}, {"meta", string(s.Meta)},
	} {
		if f[1] != "" {
			b.WriteString(sc.fact(f[0], f[1]))
		}
	}
	for _, p := range s.Parts {
		if id, ok := identity.ParseContentID(p.Content); ok {
			b.WriteString(sc.fact(p.Role, progress.ObjectPathIn(installation.BucketDir(dir))(identity.ContentKey(id))))
		}
	}
	return b.String()
}

func snapshotRestoreCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "restore SNAPSHOT FOLDER",
		Short: "Write a snapshot's files into a new folder",
		Long: "Makes FOLDER, which must not exist, of the snapshot's files. It appears once every byte is checked, or not at all.\n\n" +
			"SNAPSHOT is a snapshot's id, or an unambiguous beginning of it.",
		Args: arguments(0, "SNAPSHOT", "FOLDER"),
	}
	dir := dirFlag(c)
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		_, store, closeAll, err := e.openSnapshots(c, *dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeAll()) }()
		snap, err := findSnapshot(c.Context(), store, args[0])
		if err != nil {
			return err
		}
		if err := store.Restore(c.Context(), snap, args[1]); err != nil {
			return err
		}
		_, err = fmt.Fprintf(e.Err, "snapshot %s is in %s\n", snap.ID, args[1])
		return err
	}
	return c
}
