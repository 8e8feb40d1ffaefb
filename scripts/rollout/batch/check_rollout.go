package batch

import (
	"bufio"
	"context"
	"errors"
	"os"
	"path/filepath"

	"rollout/functions/dryrun"
	"rollout/functions/submit"
	"rollout/gpuworker/process"
	"rollout/scripts/rollout/promptsfile"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/embedded/bucket"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/jsonl"
	"rollout/shared/kind"
	"rollout/shared/prices"
	"rollout/shared/record"
	"rollout/shared/rollout"
	"rollout/shared/trials"
)

// RolloutReport is the result of CheckRollout, and what --dry-run --json prints of a rollout.
type RolloutReport struct {
	Report                 // of what is asked first, in the order in which it is asked
	Stage      string      `json:"stage"`   // what that is. Example: "answer"
	Tickets    int         `json:"tickets"` // of the file; those that are set aside for comparisons are not among them
	Refused    int         `json:"refused"` // lines that are not tickets
	Epochs     int         `json:"epochs"`
	AllAnswers int         `json:"all_answers"` // of all tickets in all epochs
	Graders    []string    `json:"graders"`
	RefusedAt  []RefusedAt `json:"refused_at"` // the first ones
}

// RefusedAt is a line that is not a ticket, and why.
type RefusedAt struct {
	Line    uint64 `json:"line"`
	Message string `json:"message"`
}

// dryRunID stands for the run of a check.
const dryRunID = identity.RunID("00000000000000000000000000")

// CheckRollout reads every ticket as a rollout of the config in the deployment would, and makes the requests of its
// first batch. It works in the folder, which the caller removes. Lines that are not tickets, and requests that the run
// could not ask, are counted; a config, a grader or a file that the rollout would refuse is an error.
func CheckRollout(
	ctx context.Context, c config.Run, d config.Deployment, file, folder string,
) (r RolloutReport, err error) {
	b, err := bucket.Open(filepath.Join(folder, "bucket"), bucket.Options{})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	first, err := grow(ctx, b, c, d, file, folder)
	if err != nil {
		return r, err
	}
	if r, err = reportRollout(ctx, first.kind, first.Appended); err != nil {
		return r, err
	}
	r.Report, err = first.check(ctx, d, file)
	return r, err
}

// TrialsReport is the result of CheckTrials, and what --dry-run --json prints of a run of trials.
type TrialsReport struct {
	Report                // of all trials, in the order of the schedule
	Tasks        int      `json:"tasks"`
	Variants     []string `json:"variants"`
	Replications int      `json:"replications"`
	Graders      []string `json:"graders"`
	// Looks are where a run that prunes is looked at: after how many trials. It is empty for other runs.
	Looks []int `json:"looks"`
}

// CheckTrials reads every task as a run of trials of the config in the deployment would, and makes the requests of all
// trials. It works in the folder, which the caller removes. Requests that the run could not ask are counted; a config,
// a grader, a task or a file that the run would refuse is an error.
func CheckTrials(
	ctx context.Context, c config.Run, d config.Deployment, file, folder string,
) (r TrialsReport, err error) {
	b, err := bucket.Open(filepath.Join(folder, "bucket"), bucket.Options{})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	all, err := grow(ctx, b, c, d, file, folder)
	if err != nil {
		return r, err
	}
	r = TrialsReport{Variants: []string{}, Graders: []string{}, Replications: c.DesignOf().Replications}
	for _, v := range c.Variants {
		r.Variants = append(r.Variants, v.Name)
	}
	for _, g := range c.Grades {
		r.Graders = append(r.Graders, g.Name)
	}
	r.Report, err = all.check(ctx, d, file)
	r.Tasks = int(r.Items) / max(1, len(c.Variants)*r.Replications)
	r.Looks = []int{}
	if places := trials.LookPlaces(c, int(r.Items)); len(places) > 0 {
		r.Looks = places[:len(places)-1] // the last place is the end
	}
	return r, err
}

// grown is what a run asks first whose kind makes the lines.
type grown struct {
	kind kind.Kind
	kind.Appended
	lines string // the path of a file with them
}

// grow writes what a run of the config in the deployment asks first of the file. It checks what submitting it does.
func grow(
	ctx context.Context, b *bucket.Bucket, c config.Run, d config.Deployment, file, folder string,
) (g grown, err error) {
	if err := submit.CheckGraders(d, c.Grades); err != nil {
		return g, err
	}
	if g.kind, err = (kind.Table{}).Of(c.Kind); err != nil {
		return g, err
	}
	in, err := copyUnpacked(ctx, b, file, c.Input.MaxUnpacked)
	if err != nil {
		return g, err
	}
	m := record.Manifest{Schema: record.Schema, Run: dryRunID, Kind: c.Kind, Config: g.kind.ManifestConfig(c),
		Inputs: []record.Input{in}}
	head := func(ctx context.Context, in record.Input) ([]byte, error) {
		return input.ReadPart(ctx, b, in.Key, 0, min(in.Size, submit.HeadSize))
	}
	if err := g.kind.Complete(ctx, &m, kind.Site{Deployment: d, Head: head}); err != nil {
		return g, err
	}
	if m.Roles, err = g.kind.ResolveRoles(m.Config, m.ModelURI, d); err != nil {
		return g, err
	}
	if err := submit.CheckAgents(d, m, d.Cloud.Configured()); err != nil {
		return g, err
	}
	if err := prices.CheckBudget(d, c.Limits, m.Pools()); err != nil {
		return g, err
	}
	g.lines = filepath.Join(folder, "first.jsonl")
	g.Appended = kind.Appended{Blobs: b, Manifest: m, Input: len(m.Inputs)}
	return g, writeFirst(ctx, g.kind, g.Appended, in, g.lines)
}

// check checks the requests of the lines, which are not those of the user's file.
func (g grown) check(ctx context.Context, d config.Deployment, file string) (Report, error) {
	at := func(string, uint64) string { return "a request of " + file }
	m := g.Manifest
	r, err := checkFiles(ctx, m.Config, d.ForPool(m.Pool).Engine, []string{g.lines}, dryrun.Options{At: at})
	r.Model = m.ModelURI
	for i := range r.Requests {
		r.Requests[i].File, r.Requests[i].Line = file, 0
	}
	return r, err
}

// copyUnpacked copies the file into the bucket as a run would have it: unpacked.
func copyUnpacked(ctx context.Context, b *bucket.Bucket, file string, limit int64) (in record.Input, err error) {
	u, err := promptsfile.Open(ctx, file, limit)
	if err != nil {
		return in, err
	}
	defer u.Close() // opened for reading: closing loses nothing
	key := record.PromptsPrefix + "tickets.jsonl"
	info, err := b.Put(ctx, key, u, blob.PutOptions{})
	err = promptsfile.Unwritable(err, "a copy of "+file)
	return record.Input{Key: key, Version: info.Version, Size: info.Size, Name: file}, err
}

// writeFirst writes the lines that the run asks first.
func writeFirst(ctx context.Context, k kind.Kind, a kind.Appended, in record.Input, path string) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return promptsfile.Unwritable(err, "the first requests")
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := bufio.NewWriter(f)
	nothing := func(func(kind.Item, error) bool) {}
	noRows := func(func([]byte, error) bool) {}
	if err := k.Grow(ctx, kind.Growth{Appended: a, Items: nothing, Answers: noRows,
		Source: record.Ranges{Key: in.Key, Version: in.Version, Size: in.Size}}, out); err != nil {
		return err
	}
	return promptsfile.Unwritable(out.Flush(), "the first requests")
}

// reportRollout reads what the first batch's plan knows of the whole.
func reportRollout(ctx context.Context, k kind.Kind, a kind.Appended) (r RolloutReport, err error) {
	p, err := k.Progress(ctx, a)
	if err != nil || p == nil {
		return r, err
	}
	r = RolloutReport{Stage: p.Stage, Tickets: p.AllTickets / max(1, p.Epochs), Refused: p.Refused, Epochs: p.Epochs,
		AllAnswers: p.AllItems, Graders: []string{}, RefusedAt: []RefusedAt{}}
	for _, g := range a.Manifest.Config.Grades {
		r.Graders = append(r.Graders, g.Name)
	}
	refused, err := rollout.FirstRefused(ctx, a.Blobs, a.Manifest.Run, dryrun.MaxWarnings)
	for _, at := range refused {
		r.RefusedAt = append(r.RefusedAt, RefusedAt{at.Line, at.Message})
	}
	return r, err
}

// FirstTrials returns the manifest that a run of trials would have, without its artifacts, and the first trial of each
// variant. It checks what submitting the file does. The folder takes what it needs meanwhile.
func FirstTrials(
	ctx context.Context, c config.Run, d config.Deployment, file, folder string,
) (m record.Manifest, lines [][]byte, err error) {
	b, err := bucket.Open(filepath.Join(folder, "bucket"), bucket.Options{})
	if err != nil {
		return m, nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	all, err := grow(ctx, b, c, d, file, folder)
	if err != nil {
		return m, nil, err
	}
	r, err := os.Open(all.lines)
	if err != nil {
		return m, nil, fault.WithKind(fault.Unavailable, err, "read the trials")
	}
	defer r.Close()
	lines, err = process.SmokeLines(all.Manifest, jsonl.NewScanner(r, jsonl.Options{}))
	return all.Manifest, lines, err
}
