package record

import (
	"time"

	"rollout/shared/core/identity"
)

// OpenRun is the document open/<run>: the run may need looking after. Submit
// creates it before the manifest, so that there is one for every manifest that
// it may have made; reclaim deletes it when the run has ended. Who looks for
// work finds nothing to read where there is none.
type OpenRun struct {
	Schema int            `json:"schema"`
	Run    identity.RunID `json:"run"`
	At     time.Time      `json:"at"` // when submit last began to make the run
	// PlanRequestedAt is when reclaim last asked for the plan of a run that coordinate had
	// not heard of.
	PlanRequestedAt time.Time `json:"asked,omitzero"`
}
