// Package dryrun checks the lines of prompts files as a run would read them, and starts nothing: for
// `rollout submit --dry-run` and for uploads that the live page shows before they start.
//
// It streams: its memory does not grow with the files. It reads what it is given, and knows neither
// a file system nor a bucket.
package dryrun

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"rollout/functions/submit"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

// Report is the result of Check, and what --dry-run --json prints.
type Report struct {
	Model      string            `json:"model"`
	Dialect    dialect.Name      `json:"dialect"`
	Items      uint64            `json:"items"`      // lines that are not blank
	Bad        uint64            `json:"bad"`        // items that become error rows, those with the id of another included
	Duplicates uint64            `json:"duplicates"` // items with the id of an earlier line
	Endpoints  map[string]uint64 `json:"endpoints"`  // items by the path that they go to
	Sent       map[string]uint64 `json:"sent"`       // items by the members that are sent
	Returned   map[string]uint64 `json:"returned"`   // items by the members that come back
	Requests   []ShownRequest    `json:"requests"`   // the first ones
	Warnings   []string          `json:"warnings"`   // descriptions of the first bad lines
}

// ShownRequest is a request as it would be sent, without headers.
type ShownRequest struct {
	File string          `json:"file"`
	Line uint64          `json:"line"`
	ID   string          `json:"id"`
	Path string          `json:"path"` // below the engine's base URL, or from the server's root
	Body json.RawMessage `json:"body"`
}

// Bounds of a Report and of the memory of Check.
const (
	MaxWarnings = 20
	maxRequests = 3
	maxMembers  = 100     // names in Sent and in Returned
	maxIDs      = 1 << 22 // ids that later lines are compared with; their hashes take 170 MiB
)

// File is a prompts file. Open opens its content, unpacked.
type File struct {
	Name string
	Open func(context.Context) (io.ReadCloser, error)
}

// Options are optional.
type Options struct {
	// At returns what the warning of a bad line begins with. Example: "x.jsonl:7".
	At func(file string, line uint64) string
	// Each is called for every line that the run would ask, in order, with the line's bytes, which are
	// valid until it returns. With it, the Report has no members, endpoints and requests.
	Each func(line []byte, it *dialect.Item) error
	// Bad is called for every line that the run would refuse. With it, no warning describes a bad line.
	Bad func(line uint64, why error)
	// Enough is asked before each line and each read. Once it returns true, the check ends there.
	Enough func() bool
}

// Check reads and parses every line of every file, as a run of the config would, with the model and the engine's
// settings. It streams: memory is bounded. Bad lines are counted in the Report; a file that cannot be read is an error.
func Check(ctx context.Context, c config.Run, engine config.Engine, files []File, o Options) (Report, error) {
	if o.At == nil {
		o.At = func(file string, line uint64) string { return fmt.Sprintf("%s:%d", file, line) }
	}
	r := Report{Model: c.Model.URI, Dialect: dialect.Name(c.Input.Dialect), Endpoints: map[string]uint64{},
		Sent: map[string]uint64{}, Returned: map[string]uint64{}, Requests: []ShownRequest{}, Warnings: []string{}}
	k := &checking{report: &r, Options: o, config: c, settings: dialect.NewSettings(c.Request, engine.Request),
		tensors: engine.Tensors,
		model:   dialect.NewModel(c.Model.URI, identity.Model(c.Model.URI, c.Model.Revision), c),
		ids:     map[[16]byte]struct{}{}}
	for _, f := range files {
		if err := k.file(ctx, f); err != nil {
			return r, err
		}
	}
	if r.Bad > MaxWarnings && o.Bad == nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("and %d more bad lines", r.Bad-MaxWarnings))
	}
	if len(k.ids) == maxIDs {
		r.Warnings = append(r.Warnings,
			fmt.Sprintf("ids were compared with the first %d only; the run compares all", uint64(maxIDs)))
	}
	return r, nil
}

// checking is one Check.
type checking struct {
	report   *Report
	config   config.Run
	settings *dialect.Settings
	tensors  bool // rows may bring some
	model    dialect.Model
	parser   *dialect.Parser
	buffers  dialect.Buffers
	ids      map[[16]byte]struct{} // hashes of the ids of the lines before
	Options
}

func (k *checking) file(ctx context.Context, f File) error {
	path := f.Name
	u, err := f.Open(ctx)
	if err != nil {
		return err
	}
	defer u.Close() // opened for reading: closing loses nothing
	content := bufio.NewReaderSize(&asking{u, ctx, k.Enough}, submit.HeadSize)
	head, err := content.Peek(submit.HeadSize)
	if errors.Is(err, errEnough) {
		return nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	recognized := head[:min(len(head), jsonl.RecognizeLen)]
	if err := jsonl.Recognize(path, recognized, err != nil && len(recognized) == len(head)); err != nil {
		return fault.Wrap(err, "%s", path)
	}
	if k.report.Dialect == "" && len(head) > 0 {
		k.report.Dialect = dialect.Detect(head)
	}
	lines := jsonl.NewScanner(content, jsonl.Options{})
	for {
		if k.Enough != nil && k.Enough() {
			return nil
		}
		l, err := lines.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, errEnough) {
			return nil
		}
		if err != nil {
			return err
		}
		if l.Blank {
			continue
		}
		k.report.Items++
		it, err := k.line(l)
		switch {
		case err != nil:
			if k.report.Bad++; k.report.Bad <= MaxWarnings && k.Bad == nil {
				k.report.Warnings = append(k.report.Warnings, fmt.Sprintf("%s: %v", k.At(path, l.Number), err))
			}
			if k.Bad != nil {
				k.Bad(l.Number, err)
			}
		case k.Each == nil:
			k.count(path, l, it)
		default:
			if err := k.Each(l.Bytes, it); err != nil {
				return err
			}
		}
	}
}

// asking reads until enough was read or the context has ended, also within a long line.
type asking struct {
	from   io.Reader
	ctx    context.Context
	enough func() bool
}

// errEnough ends a check before the end of a file.
var errEnough = errors.New("enough was read")

func (a *asking) Read(b []byte) (int, error) {
	if err := a.ctx.Err(); err != nil {
		return 0, fault.WithKind(fault.Canceled, err, "check a file")
	}
	if a.enough != nil && a.enough() {
		return 0, errEnough
	}
	return a.from.Read(b)
}

// line parses a line. It returns the error of one that the run would refuse.
func (k *checking) line(l jsonl.Line) (*dialect.Item, error) {
	if l.TooLong {
		return nil, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("the line has %d bytes, more than 16 MiB", l.Length),
			Remedy: "shorten or split it"}
	}
	if k.parser == nil {
		k.parser = dialect.NewParser(k.report.Dialect)
	}
	it, err := k.parser.Parse(l.Bytes)
	if err != nil {
		return nil, err
	}
	if k.config.Model.URI != "" { // without one, the run takes that of the pool
		if err := it.CheckModel(k.config.Model.URI, k.config.Request); err != nil {
			return nil, err
		}
	}
	if _, err := k.settings.Target(it); err != nil {
		return nil, err
	}
	if err := it.CheckTensors(k.tensors); err != nil {
		return nil, err
	}
	return it, k.takeID(it)
}

// takeID returns the error of an item with the id of an earlier one.
func (k *checking) takeID(it *dialect.Item) error {
	if !it.HasID {
		return nil
	}
	content := identity.Content(k.parser.IDKey(it, true))
	hash := [16]byte(content[:16])
	if _, taken := k.ids[hash]; taken {
		k.report.Duplicates++
		return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("the id %q is that of an earlier line", it.ID),
			Remedy: "give each line its own"}
	}
	if len(k.ids) < maxIDs {
		k.ids[hash] = struct{}{}
	}
	return nil
}

// count adds a good item to the report, and its request to those that are shown.
func (k *checking) count(path string, l jsonl.Line, it *dialect.Item) {
	id := it.ItemID(k.model, k.report.Items-1)
	request := k.settings.AppendRequest(&k.buffers, it, k.model, k.config.Sampling,
		submit.PromptMaxTokens(k.config, k.report.Dialect), id, 0)
	to := request.Path
	if to == "" {
		to = pathOf(request.Endpoint)
	}
	k.report.Endpoints[to]++
	var body map[string]json.RawMessage
	if json.Unmarshal(request.Body, &body) == nil {
		for name := range body {
			add(k.report.Sent, name)
		}
	}
	for _, name := range it.Returned() {
		add(k.report.Returned, name)
	}
	if len(k.report.Requests) < maxRequests {
		k.report.Requests = append(k.report.Requests, ShownRequest{path, l.Number, it.RowID(id), to,
			json.RawMessage(strings.Clone(string(request.Body)))})
	}
}

// add counts a name, if there is room for it.
func add(counts map[string]uint64, name string) {
	if _, known := counts[name]; known || len(counts) < maxMembers {
		counts[name]++
	}
}

// pathOf returns the path of an endpoint below the engine's base URL.
func pathOf(e dialect.Endpoint) string {
	switch e {
	case dialect.Chat:
		return "/chat/completions"
	case dialect.Completion:
		return "/completions"
	}
	return "/" + string(e)
}
