// Package rounds is a kind of run for tests: its plan grows.
//
// The first round are the prompts of the run's inputs. Each further round asks one
// prompt for each answer of the round before, with a digest of that answer in it, so
// that a wrong, missing or repeated answer of any round shows in all later ones.
//
// One of the further rounds may be of the role Judge, which a pool of its own answers.
//
//	inputs ─▶ answers ─▶ Lines ─▶ answers ─▶ Lines ─▶ … ─▶ complete
package rounds

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/kind"
	"rollout/shared/record"
)

// Name is the kind's name in manifests.
const Name = "rounds"

// Kind returns the kind, whose runs have that many rounds: at least 1, the inputs. A
// round without an answer is the last one.
func Kind(count int) kind.Kind {
	grow := func(_ context.Context, g kind.Growth, w io.Writer) error {
		round := Round(g.Manifest, g.Input)
		if round > count {
			return nil
		}
		n := 0
		for row, err := range g.Answers {
			if err != nil {
				return err
			}
			line, err := Line(round, n, row)
			if err == nil {
				_, err = w.Write(append(line, '\n'))
			}
			if err != nil {
				return err
			}
			n++
		}
		return nil
	}
	return kind.Kind{Name: Name, Executor: config.ExecutorInfer, Complete: kind.CompletePrompts, Grow: grow}
}

// Judge is the role of a judged round, and JudgeModel the model that answers it.
const Judge, JudgeModel = "judge", "wise"

// WithJudge returns the kind with a round of the role Judge, from 2 on. The answers of
// that round are in no output file, and those of the next one depend on them.
func WithJudge(count, judged int) kind.Kind {
	k := Kind(count)
	k.Roles = func(config.Run) []kind.Role {
		return []kind.Role{{Name: Judge, Model: config.Model{URI: JudgeModel}}}
	}
	k.RoleOf = func(_ context.Context, a kind.Appended) (string, error) {
		if Round(a.Manifest, a.Input) == judged {
			return Judge, nil
		}
		return record.RoleAnswer, nil
	}
	return k
}

// Round returns the round of what is planned as that input of the run, from 1.
func Round(m record.Manifest, input int) int { return max(0, input-m.InputCount()+1) + 1 }

// SharedID is the id of the first prompt of every round after the first. From the
// second such round of the role answer on, that prompt is thus a duplicate.
const SharedID = "first of its round"

// Line returns the prompt of a round that asks about answer n of the round before, an
// output row of the plain dialect. It has an id of its own unless n is odd.
func Line(round, n int, row []byte) ([]byte, error) {
	var answer struct {
		ID         string
		Completion json.RawMessage
	}
	if err := json.Unmarshal(row, &answer); err != nil {
		return nil, fault.WithKind(fault.Corrupt, err, "read answer %d before round %d", n, round)
	}
	id := ""
	switch {
	case n == 0:
		id = fmt.Sprintf(`"id":%q,`, SharedID)
	case n%2 == 0:
		id = fmt.Sprintf(`"id":"round %d, %d",`, round, n)
	}
	return fmt.Appendf(nil, `{%s"prompt":"in round %d %s was answered with %s"}`, id, round, answer.ID,
		identity.Content(answer.Completion)), nil
}
