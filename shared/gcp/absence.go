package gcp

import (
	"cmp"
	"context"
	"strings"
	"time"

	"rollout/shared/core/scaling"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
	"rollout/shared/text"
)

// longestProblem bounds what is kept of Google's own words, in bytes.
const longestProblem = 512

// problemCodes are the codes of errors with which machines do not come, by their kind.
// Those of a prefix, such as ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS, are of one kind.
var problemCodes = []struct {
	prefix string
	kind   scaling.ProblemKind
}{
	{"ZONE_RESOURCE_POOL_EXHAUSTED", scaling.Stockout},
	{"RESOURCE_POOL_EXHAUSTED", scaling.Stockout},
	{"QUOTA_EXCEEDED", scaling.Quota},
	{"CONDITION_NOT_MET", scaling.Refused}, // a policy of the organisation
	{"PERMISSIONS_ERROR", scaling.Refused},
	{"PERMISSION_DENIED", scaling.Refused},
	{"FORBIDDEN", scaling.Refused},
	{"RESOURCE_NOT_FOUND", scaling.Unfit},
	{"NOT_FOUND", scaling.Unfit},
	{"INVALID_FIELD_VALUE", scaling.Unfit},
	{"INVALID_ARGUMENT", scaling.Unfit},
	{"UNSUPPORTED_OPERATION", scaling.Unfit},
	{"IMAGE_NOT_FOUND", scaling.Unfit},
}

// problemKind returns the kind of an error of a group.
func problemKind(code, message string) scaling.ProblemKind {
	for _, c := range problemCodes {
		if strings.HasPrefix(code, c.prefix) {
			return c.kind
		}
	}
	if strings.Contains(message, "Constraint constraints/") {
		return scaling.Refused
	}
	return scaling.Unknown
}

// problemMeanings begin the text of a problem.
var problemMeanings = map[scaling.ProblemKind]string{
	scaling.Stockout: "Google has no such machine free",
	scaling.Quota:    "the project's quota allows no further machine: raise it in IAM & Admin, Quotas",
	scaling.Refused:  "a policy or a missing right forbids the machine",
	scaling.Unfit:    "the machine's template names something that does not exist or does not fit",
	scaling.Unknown:  "the machine could not be started",
}

// problemText returns the text of a problem for people.
func problemText(code, message string) string {
	said := strings.TrimSpace(cmp.Or(message, "no message"))
	return problemMeanings[problemKind(code, message)] + ": " + cmp.Or(code, "no code") + ": " +
		text.Truncate(said, longestProblem, "…")
}

// noteAbsence notes, for people, why no machine of a pool came. The newest note stands.
func noteAbsence(ctx context.Context, docs document.Store, pool string, at time.Time,
	kind scaling.ProblemKind, why string) error {
	change := func(f record.Fleet, _ bool) (record.Fleet, bool, error) {
		f, changed := f.NoteAbsence(at, kind, why)
		return f, changed, nil
	}
	_, err := host.Update(ctx, docs, record.FleetKey(pool), change)
	return fault.Wrap(err, "note why no machine of the pool %s comes", pool)
}

// noteSize notes, for people, how many machines a pool shall have, and how many exist.
func noteSize(ctx context.Context, docs document.Store, pool string, at time.Time, desired, present int) error {
	change := func(f record.Fleet, _ bool) (record.Fleet, bool, error) {
		f, changed := f.See(desired, present, at)
		return f, changed, nil
	}
	_, err := host.Update(ctx, docs, record.FleetKey(pool), change)
	return fault.Wrap(err, "note how many machines the pool %s has", pool)
}
