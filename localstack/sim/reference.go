package sim

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"

	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/memory"
	"rollout/shared/record"
	"rollout/shared/result"
	"rollout/shared/rollout"
)

// reference is the same rollout in one process and a bucket of its own, without workers
// and faults. It appends stage after stage over the answers that the run has committed. The
// run must have the same objects and files: they are a function of the answers.
//
//	rows of the run's shards ─▶ Append ─▶ lines that the check expects ─▶ … ─▶ Publish ─▶ compared
type reference struct {
	bucket   *memory.Bucket
	manifest record.Manifest
	source   record.Ranges
	rows     map[uint64]committedRow // by item
	last     int                     // the last stage that counts in the run's files
	invalid  error                   // why the first stage is refused
}

// committedRow is the row of an item in the result of its shard.
type committedRow struct {
	result.Row
	again bool // the shard was claimed more than once
}

// endKey names the object that says which stage is the last of an ended rollout.
func (s *scenario) endKey() string { return s.rolloutKey("end.json") }

// rolloutKey returns the key of an object of the rollout's own.
func (s *scenario) rolloutKey(name string) string {
	return record.WorkPrefix + string(s.id) + "/rollout/" + name
}

// beginReference prepares the check of a rollout.
func (s *scenario) beginReference(ctx context.Context, st run.State) {
	if s.tickets == nil {
		return
	}
	u := &reference{bucket: memory.NewBucket(clock.System{}), manifest: s.manifest(ctx), rows: map[uint64]committedRow{}}
	in := u.manifest.Inputs[0]
	info, err := u.bucket.Put(ctx, in.Key, bytes.NewReader(s.files[0].bytes), blob.PutOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	u.source = record.Ranges{Key: in.Key, Version: info.Version, Size: info.Size, Count: 1}
	var end struct{ Last int }
	s.decode(s.object(ctx, s.endKey()), &end)
	u.last = end.Last
	index := input.NewIndex(s.bucket, s.docs)
	for n := range st.Shards {
		d := s.audit.shards[identity.ShardKey(s.id, n)]
		if d.Result == nil {
			continue
		}
		in, rows, err := result.ReadShard(ctx, withFreed{s.store}, index, u.manifest, d)
		if err != nil {
			s.t.Fatalf("seed %d: shard %d: %v", s.seed, n, err)
		}
		for _, r := range rows {
			u.rows[in.FirstItem+uint64(r.Item)] = committedRow{r, d.Attempt > 1}
		}
	}
	s.tickets.reference = u
}

// nextStage returns what the rollout must have appended as that input, behind index items;
// no lines if the plan must not have grown.
func (s *scenario) nextStage(m record.Manifest, number int, index uint64, st run.State) (f file) {
	t, u := s.tickets, s.tickets.reference
	planned := st.Reason == run.ReasonDone || index < st.Items
	if !planned && number > u.last && st.Reason != run.ReasonInputBroken { // else it was saved when the run ended
		return f
	}
	lines, err := u.append(s.t.Context(), number, s.files[number-1].lines, index)
	if fault.Is(err, fault.Invalid) && number == s.inputs {
		u.invalid = err
		return f
	}
	if err != nil {
		s.audit.breakf("stage %d cannot be appended over the answers before it: %v", number, err)
		return f
	}
	if !planned {
		return f
	}
	stage, err := rollout.ReadStage(s.t.Context(), u.bucket, s.id, number)
	if err != nil {
		s.t.Fatal(err)
	}
	f.key = m.InputName(number)
	role := map[string]uint32{rollout.RoleReflect: reflectRole, rollout.RoleCompare: compareRole}[stage.Kind.Role()]
	for n, b := range lines {
		f.lines = append(f.lines, s.lineOf(n+1, b, role))
	}
	if !t.reflects {
		want := t.batchLines(number)
		if len(want) != len(f.lines) {
			s.audit.breakf("I10: batch %d has %d lines, want %d", number-1, len(f.lines), len(want))
			return f
		}
		for n, l := range want {
			if !bytes.Equal(l.bytes, f.lines[n].bytes) {
				s.audit.breakf("I10: a line of batch %d is %s, want %s", number-1, f.lines[n].bytes, l.bytes)
			}
		}
	}
	return f
}

// append appends the stage of that number behind the lines before it, which end before the
// item index, and returns its lines.
func (u *reference) append(ctx context.Context, number int, before []line, index uint64) ([][]byte, error) {
	outcomes := func(yield func(rollout.Outcome, error) bool) {
		first := index - uint64(len(before))
		for n, l := range before {
			row, known := u.rows[first+uint64(n)]
			if !known {
				yield(rollout.Outcome{}, fault.New(fault.Corrupt, "item %d has no row", first+uint64(n)))
				return
			}
			if !yield(rollout.Outcome{Line: l.bytes, Class: row.Class, Row: row.Bytes, Again: row.again}, nil) {
				return
			}
		}
	}
	var text bytes.Buffer
	g := rollout.Growing{Blobs: u.bucket, Manifest: u.manifest, Source: u.source, Outcomes: outcomes}
	if err := g.Append(ctx, number, &text); err != nil {
		return nil, err
	}
	at := record.AppendedKey(u.manifest.Run, number)
	if _, err := u.bucket.Put(ctx, at, bytes.NewReader(text.Bytes()), blob.PutOptions{CreateOnly: true}); err != nil {
		return nil, err
	}
	lines := bytes.Split(text.Bytes(), []byte("\n"))
	return lines[:len(lines)-1], nil
}

// checkUnseen checks the committed row of an item that is in no output file.
func (s *scenario) checkUnseen(ctx context.Context, it item, st run.State) {
	row, known := s.tickets.reference.rows[it.place.Item]
	if !known {
		if st.Reason == run.ReasonDone {
			s.audit.breakf("I1: item %d (%s) has no row", it.place.Item, it.line.id)
		}
		return
	}
	want, wantErr := s.expect(ctx, it.line, it.place, row.Bytes)
	if row.Class != "" {
		want = wantErr
	}
	trim := func(b []byte) []byte { return bytes.TrimSuffix(masked(b), []byte("\n")) }
	if want != nil && bytes.Equal(trim(row.Bytes), trim(want)) || row.Class != "" && s.isBlamed(row.Bytes, it) {
		return
	}
	s.audit.breakf("I1, I10: item %d (%s) has the row %s, want %s", it.place.Item, it.line.bytes, row.Bytes, want)
}

// checkReference checks that the run has the objects, the files and the summary of the
// undisturbed one.
func (s *scenario) checkReference(ctx context.Context, completions, failed [][]byte, sum record.Summary) {
	u := s.tickets.reference
	mayCompare := func(mission string) bool { return s.known(mission) > 0 }
	if s.tickets.unfilled && u.last >= s.inputs && slices.ContainsFunc(s.tickets.missions, mayCompare) {
		s.audit.breakf("the run has begun, and its gate needs more tickets than there are")
	}
	if u.invalid != nil || u.last < s.inputs {
		return // nothing was asked
	}
	for key, b := range map[string][]byte{
		s.endKey(): s.object(ctx, s.endKey()),
		record.OutputKey(s.id, record.CompletionsFile): bytes.Join(completions, nil),
		record.OutputKey(s.id, record.ErrorsFile):      bytes.Join(failed, nil),
	} {
		if _, err := u.bucket.Put(ctx, key, bytes.NewReader(b), blob.PutOptions{CreateOnly: true}); err != nil {
			s.t.Fatal(err)
		}
	}
	got, err := rollout.Ended{Blobs: u.bucket, Manifest: u.manifest,
		Outcomes: rollout.Outcomes(ctx, u.bucket, u.manifest, sum.Items),
		Attempts: func(func(rollout.Attempt, error) bool) {}}.Publish(ctx)
	if err != nil {
		s.audit.breakf("the files cannot be published over the answers: %v", err)
		return
	}
	if a, b := string(record.Encode(sum.Rollout)), string(record.Encode(got)); a != b {
		s.audit.breakf("the summary has %s, an undisturbed run %s", a, b)
	}
	for _, prefix := range []string{s.rolloutKey(""), record.WorkPrefix + string(s.id) + "/range/",
		record.OutputKey(s.id, "")} {
		s.compareObjects(ctx, prefix)
	}
}

// compareObjects compares the objects of the run with those of the undisturbed one. A run
// that ended early may have more objects of the stage that was made then, or fewer.
func (s *scenario) compareObjects(ctx context.Context, prefix string) {
	mine, theirs := objectsOf(ctx, s.bucket, prefix), objectsOf(ctx, s.tickets.reference.bucket, prefix)
	for key, want := range theirs {
		if strings.HasSuffix(key, "/"+rollout.AttemptsFile) {
			continue
		}
		if got, ok := mine[key]; !ok && s.isDone || ok && got != want {
			s.audit.breakf("I10: %s is %q, of an undisturbed run %q", key, got, want)
		}
	}
	for key := range mine {
		_, ok := theirs[key]
		if !ok && s.isDone && key != record.OutputKey(s.id, record.SummaryFile) {
			s.audit.breakf("I10: an undisturbed run has no %s", key)
		}
	}
}

// objectsOf returns the objects with a prefix, by key.
func objectsOf(ctx context.Context, bucket *memory.Bucket, prefix string) map[string]string {
	out := map[string]string{}
	all, err := bucket.List(ctx, prefix, "", blob.MaxList)
	for _, o := range all {
		var r io.ReadCloser
		if r, _, err = bucket.Get(ctx, o.Key, blob.GetOptions{}); err != nil {
			break
		}
		b, readErr := io.ReadAll(r)
		if err = readErr; err != nil {
			break
		}
		out[o.Key] = string(b)
	}
	if err != nil || len(all) == blob.MaxList {
		panic(err)
	}
	return out
}
