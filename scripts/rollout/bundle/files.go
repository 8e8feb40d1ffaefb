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
	"rollout/functions/status"
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

// Limits of a bundle.
const (
	maxShards   = 1000    // open shards, and as many sampled over the whole run
	maxFailures = 1000    // failed items
	maxLetters  = 100     // dead letters of each queue
	maxWorkers  = 1000    // workers
	maxTail     = 1 << 20 // bytes of each log's end
)

// files returns the files of the bundle in their order.
func (p *packer) files() []file {
	out := []file{
		{"version.json", "the program", value(p.Version)},
		{"machine.json", "the machine that made this bundle", value(p.Machine)},
		{"deployment.json", "the installation's config, with names of secrets but no secrets", value(p.deployment())},
		{"status.json", "the run, its workers and queues", func(ctx context.Context) ([]byte, error) {
			o, err := p.Service.RunOverview(ctx, p.Run)
			if err != nil {
				return nil, err
			}
			return indented(o)
		}},
		{"explain.json", "the run's history and what happens next", func(ctx context.Context) ([]byte, error) {
			x, err := p.Service.Explain(ctx, p.Run, "")
			if err != nil {
				return nil, err
			}
			return indented(x)
		}},
		{"manifest.json", "what was submitted", p.manifest},
		{"control.json", "requests to pause, resume or stop", p.document(record.ControlKey(p.Run))},
		{"coordinator.json", "the run's progress", p.document(record.CoordinatorKey(p.Run))},
		{"plan.json", "the run's plan", p.document(record.PlanKey(p.Run))},
		{"summary.json", "how the run ended", p.object(record.OutputKey(p.Run, record.SummaryFile))},
		{"shards.jsonl", "documents of open shards and of a sample of all shards", p.shards},
		{"failures.jsonl", "failed items: place and class", p.failures},
		{"workers.jsonl", "heartbeats, and what functions recorded about workers", p.workers},
		{"dead_letters.jsonl", "headers of messages that could not be processed", p.deadLetters},
	}
	for _, path := range p.Logs {
		out = append(out, file{"logs/" + filepath.Base(path), "the end of " + path,
			func(context.Context) ([]byte, error) { return p.tail(path) }})
	}
	return out
}

// value packs v as indented JSON.
func value(v any) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) { return indented(v) }
}

// document packs a document, indented if it is JSON. It leaves out a document that does not exist.
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
			return d.Value, nil // invalid JSON: pack it unchanged, as it may be the cause
		}
		return append(b.Bytes(), '\n'), nil
	}
}

// maxObject limits the bytes that are read of an object.
const maxObject = 1 << 20

// object packs an object of the bucket. It leaves out an object that does not exist.
func (p *packer) object(key string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		r, _, err := p.Ports.Blobs.Get(ctx, key, blob.GetOptions{Length: maxObject})
		if fault.Is(err, fault.NotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		defer r.Close() // opened for reading: closing loses nothing
		return io.ReadAll(io.LimitReader(r, maxObject))
	}
}

// shards packs the documents of the first open shards and of a sample of all shards, sorted by number. Shard documents
// contain no text of items.
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

// failure describes a failed item without its text.
type failure struct {
	Item  uint64      `json:"item"`
	ID    string      `json:"id"`
	File  string      `json:"file"`
	Line  uint64      `json:"line"`
	Class fault.Class `json:"class"`
}

// failures packs the first error rows of an ended run without their messages.
func (p *packer) failures(ctx context.Context) ([]byte, error) {
	m, err := host.LoadManifest(ctx, p.Ports.Docs, p.Run)
	if err != nil {
		return nil, err
	}
	r, _, err := p.Ports.Blobs.Get(ctx, record.OutputKey(p.Run, record.ErrorsFile), blob.GetOptions{})
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close() // opened for reading: closing loses nothing
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

// hashedID is the number of hex digits of an id's hash that replace the id.
const hashedID = 16

// id returns an item's id if the bundle may include it, else its hash.
func (p *packer) id(id string) string {
	if p.WithIDs || id == "" {
		return id
	}
	return "blake3:" + identity.Content([]byte(id)).String()[:hashedID]
}

// workers packs the heartbeats of the workers and what functions recorded about them.
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
			status.WorkerStatus
			Mark record.WorkerMark `json:"mark"`
		}{w, mark}); err != nil {
			return nil, err
		}
	}
	return out.b.Bytes(), nil
}

// letter describes a dead letter without its body.
type letter struct {
	Queue    string    `json:"queue"`
	ID       string    `json:"id"`
	Type     string    `json:"type"` // "" if the message is not a valid event
	Source   string    `json:"source"`
	Time     time.Time `json:"time"`
	Receives int       `json:"receives"`
	Bytes    int       `json:"bytes"`
}

// hide is the visibility timeout of a dead letter while it is read.
const hide = time.Second

// deadLetters packs the headers of dead letters. It receives the messages and makes them visible again, which changes
// their order.
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

// tail returns the end of a log or event file, starting with a complete line. It hashes the ids of items.
func (p *packer) tail(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "read the log")
	}
	defer f.Close() // opened for reading: closing loses nothing
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, fault.New(fault.Invalid, "%s is not a regular file", path)
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

// textID matches the id of an item in a log line in text format.
var textID = regexp.MustCompile(`\bid=("(?:[^"\\]|\\.)*"|\S+)`)

// logLine hashes the item id in a log line. It returns nil, which drops the line, if it cannot locate the id reliably.
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
