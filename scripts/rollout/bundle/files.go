package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"rollout/events"
	"rollout/functions/api"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/jsonl"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// Bounds of a bundle.
const (
	maxShards   = 1000    // open ones, and as many over the whole run
	maxFailures = 1000    // failed items that are told one by one
	maxLetters  = 100     // dead letters of a queue
	maxWorkers  = 1000    // heartbeats
	maxTail     = 1 << 20 // bytes of a log's end
)

// files are the bundle's, in their order.
func (p *packer) files() []file {
	out := []file{
		{"version.json", "the program", func(context.Context) ([]byte, error) { return indented(p.Version) }},
		{"machine.json", "the machine that packed this", func(context.Context) ([]byte, error) { return indented(p.Machine) }},
		{"deployment.json", "the installation's config: names of secrets, never secrets", func(context.Context) ([]byte, error) { return indented(p.Deployment) }},
		{"status.json", "the run, its workers and queues", func(ctx context.Context) ([]byte, error) {
			o, err := p.Service.RunOverview(ctx, p.Run)
			if err != nil {
				return nil, err
			}
			return indented(o)
		}},
		{"explain.json", "the run's story", func(ctx context.Context) ([]byte, error) {
			x, err := p.Service.Explain(ctx, p.Run, "")
			if err != nil {
				return nil, err
			}
			return indented(x)
		}},
		{"manifest.json", "what was submitted", p.document(record.ManifestKey(p.Run))},
		{"control.json", "what is wanted of it", p.document(record.ControlKey(p.Run))},
		{"coordinator.json", "its progress", p.document(record.CoordinatorKey(p.Run))},
		{"plan.json", "its plan", p.document(record.PlanKey(p.Run))},
		{"summary.json", "how it ended", p.object(record.OutputKey(p.Run, record.SummaryFile))},
		{"shards.jsonl", "documents of open shards, and of some over the whole run", p.shards},
		{"failures.jsonl", "failed items: place and class", p.failures},
		{"workers.jsonl", "heartbeats, and what functions found out about workers", p.workers},
		{"dead_letters.jsonl", "heads of messages that could not be handled", p.deadLetters},
	}
	for _, path := range p.Logs {
		out = append(out, file{"logs/" + filepath.Base(path), "the end of " + path, func(context.Context) ([]byte, error) { return p.tail(path) }})
	}
	return out
}

// document packs a document as it is; an absent one is left out.
func (p *packer) document(key string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		d, err := p.Ports.Docs.Get(ctx, key)
		if fault.Is(err, fault.NotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		if json.Indent(&b, d.Value, "", "  ") != nil {
			return d.Value, nil // it is broken: that is what is to be seen
		}
		return append(b.Bytes(), '\n'), nil
	}
}

// maxObject bounds a small object.
const maxObject = 1 << 20

func (p *packer) object(key string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		r, _, err := p.Ports.Blobs.Get(ctx, key, blob.GetOptions{Length: maxObject})
		if fault.Is(err, fault.NotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		defer r.Close() // read only: nothing can be lost
		return io.ReadAll(io.LimitReader(r, maxObject))
	}
}

// shards packs the documents of the first open shards, then of shards evenly
// over the run. They hold no text of items.
func (p *packer) shards(ctx context.Context) ([]byte, error) {
	st := run.New(p.Run)
	if _, _, err := host.Load(ctx, p.Ports.Docs, record.CoordinatorKey(p.Run), &st); err != nil {
		return nil, err
	}
	wanted := map[int]bool{}
	for _, r := range st.Open() {
		for n := r.Lo; n < r.Hi && len(wanted) < maxShards; n++ {
			wanted[n] = true
		}
	}
	step := max(1, (st.NextShard+maxShards-1)/maxShards)
	for n := 0; n < st.NextShard; n += step {
		wanted[n] = true
	}
	var numbers []int
	for n := range wanted {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	var out lines
	for part := range slices.Chunk(numbers, document.MaxKeys) {
		keys := make([]string, len(part))
		for i, n := range part {
			keys[i] = identity.ShardKey(p.Run, n)
		}
		docs, err := p.Ports.Docs.GetMany(ctx, keys)
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			if d.Revision == "" {
				continue
			}
			var doc shard.Doc
			if err := record.Decode(d.Value, &doc, "document "+d.Key); err != nil {
				return nil, err
			}
			if err := out.add(doc); err != nil {
				return nil, err
			}
		}
	}
	return out.b.Bytes(), nil
}

// failure is what a bundle tells of a failed item.
type failure struct {
	Item  uint64      `json:"item"`
	ID    string      `json:"id"`
	File  string      `json:"file"`
	Line  uint64      `json:"line"`
	Class fault.Class `json:"class"`
}

// failures packs the first error rows of a run that has ended, without their
// messages.
func (p *packer) failures(ctx context.Context) ([]byte, error) {
	var m record.Manifest
	if _, _, err := host.Load(ctx, p.Ports.Docs, record.ManifestKey(p.Run), &m); err != nil {
		return nil, err
	}
	r, _, err := p.Ports.Blobs.Get(ctx, record.OutputKey(p.Run, record.ErrorsFile), blob.GetOptions{})
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close() // read only: nothing can be lost
	var out lines
	rows := jsonl.NewScanner(r, jsonl.Options{})
	for range maxFailures {
		row, err := rows.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		f, ok := dialect.ReadFailure(dialect.Name(m.Dialect), row.Bytes)
		if !ok {
			continue
		}
		if err := out.add(failure{f.Place.Item, p.id(f.ID), f.Place.File, f.Place.Line, f.Class}); err != nil {
			return nil, err
		}
	}
	return out.b.Bytes(), nil
}

// hashedID is how much of an id's hash stands for it.
const hashedID = 16

// id is an item's id, as the bundle may show it.
func (p *packer) id(id string) string {
	if p.WithIDs || id == "" {
		return id
	}
	return "blake3:" + identity.Content([]byte(id)).String()[:hashedID]
}

func (p *packer) workers(ctx context.Context) ([]byte, error) {
	all, err := p.Service.Workers(ctx)
	if err != nil {
		return nil, err
	}
	var out lines
	for _, w := range all[:min(len(all), maxWorkers)] {
		var mark record.WorkerMark
		if _, _, err := host.Load(ctx, p.Ports.Docs, record.WorkerKey(w.Worker), &mark); err != nil {
			return nil, err
		}
		if err := out.add(struct {
			api.WorkerStatus
			Mark record.WorkerMark `json:"mark"`
		}{w, mark}); err != nil {
			return nil, err
		}
	}
	return out.b.Bytes(), nil
}

// letter is the head of a dead letter.
type letter struct {
	Queue    string    `json:"queue"`
	ID       string    `json:"id"`
	Type     string    `json:"type"` // "" if it is no event at all
	Source   string    `json:"source"`
	Time     time.Time `json:"time"`
	Receives int       `json:"receives"`
	Bytes    int       `json:"bytes"`
}

// hide is how long a dead letter is hidden while it is looked at.
const hide = time.Second

func (p *packer) deadLetters(ctx context.Context) ([]byte, error) {
	o, err := p.Service.RunOverview(ctx, p.Run)
	if err != nil {
		return nil, err
	}
	var out lines
	for _, q := range o.Queues {
		if q.Dead == 0 {
			continue
		}
		name := queue.DeadLetterQueue(q.Queue)
		ms, err := p.Ports.Queues.Receive(ctx, name, maxLetters, hide, 0)
		if err != nil {
			return nil, err
		}
		for _, m := range ms {
			l := letter{Queue: name, ID: m.ID, Receives: m.Receives, Bytes: len(m.Body)}
			if e, _, err := events.Decode(m.Body); err == nil {
				l.Type, l.Source, l.Time = string(e.Type), e.Source, e.Time
			}
			if err := out.add(l); err != nil {
				return nil, err
			}
			if err := p.Ports.Queues.Nack(ctx, name, m.Receipt, 0); err != nil {
				return nil, err
			}
		}
	}
	return out.b.Bytes(), nil
}

// tail is the end of a log or event file, from a line's beginning on, with the
// ids of items hashed where lines are JSON.
func (p *packer) tail(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "read the log")
	}
	defer f.Close() // read only: nothing can be lost
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, fault.New(fault.Invalid, "%s is no regular file", path)
	}
	from := max(0, info.Size()-maxTail)
	b, err := io.ReadAll(io.LimitReader(io.NewSectionReader(f, from, maxTail), maxTail))
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "read the log")
	}
	if from > 0 {
		_, b, _ = bytes.Cut(b, []byte("\n"))
	}
	var out bytes.Buffer
	for line := range bytes.Lines(b) {
		out.Write(p.logLine(line))
	}
	return out.Bytes(), nil
}

// textID is the id of an item in a log line that is no JSON.
var textID = regexp.MustCompile(`\bid=("(?:[^"\\]|\\.)*"|\S+)`)

// logLine hashes the id of the item that a line is about. A line whose id
// can't be taken out for certain is left out.
func (p *packer) logLine(line []byte) []byte {
	if p.WithIDs {
		return line
	}
	if !bytes.HasPrefix(line, []byte("{")) {
		return textID.ReplaceAllFunc(line, func(m []byte) []byte {
			id := strings.TrimPrefix(string(m), "id=")
			if plain, err := strconv.Unquote(id); err == nil {
				id = plain
			}
			return []byte("id=" + p.id(id))
		})
	}
	var e struct{ ID *string }
	switch err := json.Unmarshal(line, &e); {
	case err != nil:
		return nil
	case e.ID == nil || *e.ID == "":
		return line
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(line, &members) != nil {
		return nil
	}
	written := []byte(`"id":` + string(members["id"]))
	if len(members["id"]) == 0 || bytes.Count(line, written) != 1 {
		return nil
	}
	return bytes.Replace(line, written, []byte(`"id":"`+p.id(*e.ID)+`"`), 1)
}
