package record

import (
	"time"

	"rollout/shared/engine/identity"
)

// Open is the document open/<run>: the run may need looking after. Submit
// creates it before the manifest, so that there is one for every manifest that
// it may have made; reclaim deletes it when the run has ended. Who looks for
// work finds nothing to read where there is none.
type Open struct {
	Schema int            `json:"schema"`
	Run    identity.RunID `json:"run"`
	At     time.Time      `json:"at"` // when submit last began to make the run
	// Asked is when reclaim last asked for the plan of a run that coordinate had
	// not heard of.
	Asked time.Time `json:"asked,omitzero"`
}
