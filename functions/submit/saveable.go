package submit

import (
	"encoding/json"
	"fmt"

	"rollout/shared/config"
	"rollout/shared/document"
	"rollout/shared/record"
	"rollout/shared/text"
)

// maxRefusal bounds the reason in a refused manifest, in bytes.
const maxRefusal = 32 << 10

// saveable returns the manifest if a document can hold it. Otherwise it returns a
// refused manifest of what names the run, without the values that a document cannot
// hold, so that no upload is tried for ever.
func saveable(m record.Manifest) record.Manifest {
	m.Refused = text.Truncate(m.Refused, maxRefusal, "…")
	b, err := json.Marshal(m)
	if err == nil && len(b) <= document.MaxValue {
		return m
	}
	if m.Refused == "" {
		m.Refused = fmt.Sprintf("the run's config, inputs and selected items make a manifest of %d bytes, at most %d are "+
			"allowed (shorten the config, or make several runs of it)", len(b), document.MaxValue)
		if err != nil {
			m.Refused = "the run's config has a value that JSON lacks: " + err.Error()
		}
	}
	out := record.Manifest{Schema: m.Schema, Run: m.Run, Name: m.Name, Kind: m.Kind, CreatedAt: m.CreatedAt,
		ConfigKey: m.ConfigKey, Config: config.DefaultRun(), Refused: m.Refused, Inputs: m.Inputs[:min(1, len(m.Inputs))],
		Artifacts: m.Artifacts} // which are kept for the run until it expires
	if m.Parent != nil {
		out.Parent = &record.Parent{Run: m.Parent.Run}
	}
	return out
}
