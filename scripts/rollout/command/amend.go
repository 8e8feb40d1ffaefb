package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"rollout/functions/api"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/input"
)

func amendCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "amend RUN",
		Short: "Add replications, variants or tasks to ended trials, in a new run",
		Long: "Starts a run that keeps all trials of RUN and asks those that are added: more replications of each task,\n" +
			"further variants, or further tasks. A trial has the seed that it would have in a run that had asked for all\n" +
			"from the beginning, and the report is that of such a run. RUN stays as it is. Prints the id of the new run.\n\n" +
			runHelp,
		Args: arguments(0, "RUN"),
	}
	location := locationFlags(c)
	var a api.Amendment
	c.Flags().IntVar(&a.Replications, "replications", 0, "how often each task is tried under each variant, `N` in all")
	variants := c.Flags().StringArray("variant", nil,
		"a `FILE.toml` with a table [[variant]] for each that is added (repeatable)")
	tasks := c.Flags().String("tasks", "",
		"a `FILE.jsonl` with further tasks; those that the run has already must be the same")
	set := setFlag(c, "a `setting` of limits of the new run, such as limits.dollars=5")
	c.Flags().BoolVar(&a.DryRun, "dry-run", false, "only say how many trials the new run asks")
	follow := c.Flags().Bool("follow", false, "follow the new run to its end; exit with 1 if it does not succeed")
	c.Flags().BoolVar(follow, "wait", false, "the same")
	asJSON := c.Flags().Bool("json", false, "print the new run as one JSON object")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		for _, path := range *variants {
			more, err := readVariants(path)
			if err != nil {
				return err
			}
			a.Variants = append(a.Variants, more...)
		}
		if *tasks != "" {
			if a.Tasks, err = readFile(*tasks, maxTasks); err != nil {
				return err
			}
			a.TasksName = filepath.Base(*tasks)
		}
		a.Set = *set
		r, err := e.openRun(c, *location, args[0])
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		out, err := r.service.Amend(c.Context(), r.run.Run, a)
		if err != nil {
			return err
		}
		if err := e.printAmended(out, *asJSON, a.DryRun); err != nil || !*follow || a.DryRun {
			return err
		}
		return e.follow(c.Context(), r.Installation, r.service, out.Run, "")
	}
	return c
}

// printAmended prints what an amended run asks.
func (e *Env) printAmended(a api.Amended, asJSON, dry bool) error {
	line := string(a.Run)
	switch {
	case asJSON:
		b, err := json.Marshal(a)
		if err != nil {
			return err
		}
		line = string(b)
	case dry:
		line = fmt.Sprintf("%s of %s: %s, %s, %s; the others are kept", figures.Of(a.Added, "new trial"),
			figures.Count(a.Trials), figures.Of(a.Stage.Tasks, "task"), figures.Of(a.Stage.Variants, "variant"),
			figures.Of(a.Stage.Replications, "replication"))
	}
	_, err := fmt.Fprintln(e.Out, line)
	return err
}

func readVariants(path string) ([]config.Variant, error) {
	b, err := readFile(path, config.MaxFileSize)
	if err != nil {
		return nil, err
	}
	return config.ParseVariants(path, b)
}

// maxTasks bounds a file of further tasks, in bytes: it is checked in memory.
const maxTasks = 1 << 30

// readFile reads a file of at most so many bytes, which may be packed.
func readFile(path string, most int64) ([]byte, error) {
	wrong := func(err error) error {
		return &fault.Error{Kind: fault.Invalid, Op: "read " + path, Err: err, Remedy: "name a file that can be read"}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, wrong(err)
	}
	defer f.Close()
	_, packed, _ := input.SplitName(path)
	u, err := input.Unpack(f, packed)
	if err != nil {
		return nil, wrong(err)
	}
	defer u.Close()
	b, err := io.ReadAll(io.LimitReader(u, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	if err != nil {
		return nil, wrong(err)
	}
	return b, nil
}
