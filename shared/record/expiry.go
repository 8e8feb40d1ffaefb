package record

import (
	"time"

	"rollout/shared/core/identity"
)

// The documents of runs that ended long ago are deleted if the deployment says so. Its files
// in runs/ stay, and so does found/<run>:
//
//	ended/!index: expiring, then checked ─▶ found/<run> is written ─▶ run/<run> is deleted: readers find no run
//	ManifestTrust and more later ─▶ its other documents are deleted, ended/<time>.<run> last
//	                             ─▶ ended/!index: one ended run less, one expired run more

// ManifestTrust is how long a process may begin work of a run without reading its manifest
// again. A run that has expired has no shards that would say that they are done.
const ManifestTrust = time.Minute

// Expiring is a run whose documents are being deleted.
type Expiring struct {
	Entry string `json:"entry"` // its EndedKey
	// Checked says that no run needs it, and that none can come to need it.
	Checked bool `json:"checked,omitempty"`
	// Gone is when its manifest was deleted; zero before.
	Gone time.Time `json:"gone,omitzero"`
	// Shards is how many of its shards, from 0 on, have no document any more.
	Shards int `json:"shards,omitempty"`
}

// Run returns the run.
func (e Expiring) Run() identity.RunID {
	id, _ := RunOfEntry(e.Entry)
	return id
}

// Expired is what is known of a run that has expired, besides its files.
type Expired struct {
	Name    string    `json:"name"`
	Phase   string    `json:"phase"`
	EndedAt time.Time `json:"ended_at"`
	At      time.Time `json:"at"` // when it expired
	// Version is that of its input, of a run with one input.
	Version string `json:"version,omitempty"`
}
