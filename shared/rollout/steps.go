package rollout

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"rollout/shared/blob"
	"rollout/shared/core/guidance"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/record"
)

// ReadStep returns a step of a mission's guidance: of an ended run from its files, else
// from its work, which has each step from the moment on that it is made. NotFound means
// that there is no such step, or that the run ended before its first batch.
func ReadStep(ctx context.Context, blobs blob.Store, run identity.RunID, mission string, step int) (
	guidance.Guidance, error) {
	b, err := input.ReadObject(ctx, blobs, GuidanceKey(run, mission, step), maxStage)
	if fault.Is(err, fault.NotFound) {
		return readGuidance(ctx, blobs, run, mission, step)
	}
	if err != nil {
		return guidance.Guidance{}, err
	}
	return guidance.Decode(b)
}

// ReadPromoted returns the promoted guidance of a mission. NotFound means that the run has
// not ended, or ended before its first batch.
func ReadPromoted(ctx context.Context, blobs blob.Store, run identity.RunID, mission string) (
	guidance.Guidance, error) {
	g, _, err := readPromoted(ctx, blobs, run, mission)
	return g, err
}

// readPromoted also returns the version of the object.
func readPromoted(ctx context.Context, blobs blob.Store, run identity.RunID, mission string) (
	g guidance.Guidance, version string, err error) {
	b, version, err := readVersion(ctx, blobs, PromotedKey(run, mission))
	if err == nil {
		g, err = guidance.Decode(b)
	}
	return g, version, err
}

// readVersion returns the bytes of an object and their version.
func readVersion(ctx context.Context, blobs blob.Store, key string) (b []byte, version string, err error) {
	b, info, err := readInfo(ctx, blobs, key)
	return b, info.Version, err
}

// readInfo returns the bytes of an object and what the store says about it.
func readInfo(ctx context.Context, blobs blob.Store, key string) (b []byte, info blob.Info, err error) {
	r, info, err := blobs.Get(ctx, key, blob.GetOptions{})
	if err != nil {
		return nil, info, fault.Wrap(err, "read %s", key)
	}
	defer r.Close()
	b, err = io.ReadAll(io.LimitReader(r, maxStage))
	return b, info, fault.Wrap(err, "read %s", key)
}

// NewestStep returns the newest step of a mission's guidance that ReadStep finds: of an
// ended run among its files, else that of the stage of the plan's last object, -1 without
// one. NotFound means that there is none.
func NewestStep(ctx context.Context, blobs blob.Store, run identity.RunID, mission string, last int) (int, error) {
	found, err := newest(ctx, blobs, record.OutputKey(run, "guidance/"+mission+"/step-"))
	if err != nil || found >= 0 {
		return found, err
	}
	none := fault.New(fault.NotFound, "the mission %.64q of run %s has no guidance yet", mission, run)
	if last < 0 {
		return 0, none
	}
	s, err := ReadStage(ctx, blobs, run, last)
	if step, known := s.Guidance[mission]; known || err != nil {
		return step, err
	}
	return 0, none
}

// newest returns the highest number of the objects <prefix><number>.json, or -1.
func newest(ctx context.Context, blobs blob.Store, prefix string) (int, error) {
	highest, after := -1, ""
	for {
		page, err := blobs.List(ctx, prefix, after, blob.MaxList)
		if err != nil {
			return -1, fault.Wrap(err, "list the guidance")
		}
		for _, o := range page {
			after = o.Key
			name, isStep := strings.CutSuffix(strings.TrimPrefix(o.Key, prefix), ".json")
			if n, err := strconv.Atoi(name); isStep && err == nil {
				highest = max(highest, n)
			}
		}
		if len(page) < blob.MaxList {
			return highest, nil
		}
	}
}

// Promotion is a step that a person promoted after the end of a run.
type Promotion struct {
	Step    int       `json:"step"`
	Instead int       `json:"instead"` // the step that was promoted until then
	At      time.Time `json:"at"`
}

// maxPromotions bounds the promotions of a mission that are kept: the last ones.
const maxPromotions = 100

// PromotionsKey returns the key of the list of a mission's promotions, oldest first.
func PromotionsKey(run identity.RunID, mission string) string {
	return record.OutputKey(run, "guidance/"+mission+"/promoted.json")
}

// Promote makes a step of an ended run its promoted guidance of a mission, and returns the
// step that was promoted before.
//
// The promotion is noted in PromotionsKey first, and then PromotedKey is replaced at once,
// which alone decides. So a call that fails between them may be repeated. Another call at
// the same time is a Conflict for one of the two. A step that does not exist is NotFound.
// Promoting the promoted step changes nothing.
func Promote(ctx context.Context, blobs blob.Store, run identity.RunID, mission string, step int, now time.Time) (
	instead int, err error) {
	before, version, err := readPromoted(ctx, blobs, run, mission)
	if err != nil {
		return 0, err
	}
	g, err := ReadStep(ctx, blobs, run, mission, step)
	if err != nil || before.Step == step {
		return before.Step, err
	}
	if err := notePromotion(ctx, blobs, PromotionsKey(run, mission), Promotion{step, before.Step, now.UTC()}); err != nil {
		return before.Step, err
	}
	_, err = blobs.Put(ctx, PromotedKey(run, mission), bytes.NewReader(g.Encode()), blob.PutOptions{IfVersion: version})
	return before.Step, fault.Wrap(err, "replace the promoted guidance")
}

// notePromotion appends a promotion to the list, unless a call that failed has done so.
func notePromotion(ctx context.Context, blobs blob.Store, key string, p Promotion) error {
	var list []Promotion
	o := blob.PutOptions{CreateOnly: true}
	b, version, err := readVersion(ctx, blobs, key)
	switch {
	case fault.Is(err, fault.NotFound):
	case err != nil:
		return err
	default:
		o = blob.PutOptions{IfVersion: version}
		if err := json.Unmarshal(b, &list); err != nil {
			return &fault.Error{Kind: fault.Corrupt, Op: "read " + key, Err: err,
				Remedy: "remove it: it only says which steps were promoted by hand"}
		}
	}
	if n := len(list); n > 0 && list[n-1].Step == p.Step && list[n-1].Instead == p.Instead {
		return nil
	}
	list = append(list, p)
	b, err = json.MarshalIndent(list[max(0, len(list)-maxPromotions):], "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	_, err = blobs.Put(ctx, key, bytes.NewReader(append(b, '\n')), o)
	return fault.Wrap(err, "note the promotion")
}

// publishGuidance copies the steps of each mission's guidance to the files of the run, and
// the one that is promoted: the best of them.
func (p *publisher) publishGuidance(ctx context.Context) error {
	m := p.Manifest
	for _, mission := range m.Config.Missions {
		newest, known := p.last.Guidance[mission.Name]
		if !known { // the run ended before its first batch
			continue
		}
		best := p.last.promoted(mission.Name)
		for step := range newest + 1 {
			g, err := readGuidance(ctx, p.Blobs, m.Run, mission.Name, step)
			if err != nil {
				return err
			}
			if err := create(ctx, p.Blobs, GuidanceKey(m.Run, mission.Name, step), g.Encode()); err != nil {
				return err
			}
			if step == best {
				if err := create(ctx, p.Blobs, PromotedKey(m.Run, mission.Name), g.Encode()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// promoted returns the step of a mission's guidance that is best. With a gate each step
// has twice been shown to be better than the one before; without, it is the one whose
// answers have the highest mean score, or the newest if there are no scores.
func (s Stage) promoted(mission string) int {
	best := s.Guidance[mission]
	if s.Pools[mission].Gate.Len() > 0 {
		return best
	}
	highest := math.Inf(-1)
	for step, sum := range s.Steps[mission] {
		if mean := ratio(sum.Score, float64(sum.Scored)); mean != nil && *mean > highest {
			best, highest = step, *mean
		}
	}
	return best
}

// mission returns what a run came to in a mission, whose promoted step was measured on its
// holdout if measured has it.
func (s Stage) mission(name string, measured map[int]Measure) record.Mission {
	out := record.Mission{Steps: s.Guidance[name], Promoted: s.promoted(name), Gated: s.Pools[name].Gate.Len() > 0}
	for _, sum := range s.Steps[name] {
		out.Scores = append(out.Scores, ratio(sum.Score, float64(sum.Scored)))
	}
	if m, ok := s.Start[name]; ok && m.Tickets > 0 {
		out.HoldoutTickets, out.HoldoutAtStart = m.Tickets, &m.Score
		if out.Promoted == 0 {
			out.Holdout = &m.Score
		}
	}
	if m, ok := measured[out.Promoted]; ok && m.Tickets > 0 {
		out.Holdout = &m.Score
	}
	return out
}

// GuidanceKey returns the key of a step of a mission's guidance among the files of a run.
func GuidanceKey(run identity.RunID, mission string, step int) string {
	return record.OutputKey(run, fmt.Sprintf("guidance/%s/step-%d.json", mission, step))
}

// PromotedKey returns the key of the promoted guidance of a mission.
func PromotedKey(run identity.RunID, mission string) string {
	return record.OutputKey(run, "guidance/"+mission+"/guidance.json")
}

// guidanceKey returns the key of a step of a mission's guidance.
func guidanceKey(run identity.RunID, mission string, step int) string {
	return key(run, fmt.Sprintf("guidance/%s/%06d.json", mission, step))
}

// saveGuidance writes a step of a mission's guidance, create-only. A step that exists with
// other bytes is Corrupt, which ends the run: two steps were made from one (I7).
func saveGuidance(ctx context.Context, blobs blob.Store, run identity.RunID, g guidance.Guidance) error {
	at, b := guidanceKey(run, g.Mission, g.Step), g.Encode()
	_, err := blobs.Put(ctx, at, bytes.NewReader(b), blob.PutOptions{CreateOnly: true})
	if !fault.Is(err, fault.Conflict) {
		return err
	}
	have, err := input.ReadObject(ctx, blobs, at, maxStage)
	if err == nil && !bytes.Equal(have, b) {
		err = fault.New(fault.Corrupt, "step %d of the guidance of %s exists with another content", g.Step, g.Mission)
	}
	return err
}

// readGuidance reads a step of a mission's guidance.
func readGuidance(ctx context.Context, blobs blob.Store, run identity.RunID, mission string, step int) (
	guidance.Guidance, error) {
	b, err := input.ReadObject(ctx, blobs, guidanceKey(run, mission, step), maxStage)
	if err != nil {
		return guidance.Guidance{}, err
	}
	return guidance.Decode(b)
}
