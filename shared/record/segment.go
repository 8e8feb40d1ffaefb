package record

import "rollout/shared/core/shard"

// OutputSegment is the object that says what the shards from From to To, exclusive,
// put into a run's files. Of all that begin with one shard the first one
// stands, so that those from shard 0 on, each beginning where the one before
// ends, are the whole files, whoever wrote them and however far each came.
type OutputSegment struct {
	Schema      int          `json:"schema"`
	From        int          `json:"from"`
	To          int          `json:"to"`
	Completions Rows         `json:"completions"`
	Errors      Rows         `json:"errors"`
	Counts      shard.Counts `json:"counts"`
	Copies      int          `json:"copies,omitempty"`
	Workers     []string     `json:"workers,omitempty"`
}

// Rows names an object of rows; an empty one need not be there.
type Rows struct {
	Key    string `json:"key"`
	Length int64  `json:"length"`
}
