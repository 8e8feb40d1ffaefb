package bundle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/host"
)

// leftOut stands for a value that a bundle must not have.
const leftOut = "(left out)"

// manifest packs the run's manifest without the prompts and keys of its config.
func (p *packer) manifest(ctx context.Context) ([]byte, error) {
	m, err := host.LoadManifest(ctx, p.Ports.Docs, p.Run)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m.Config, m.Parent = runConfig(m.Config), m.Parent.Masked()
	if m.Original != nil {
		original := *m.Original
		original.Request = withoutTexts(original.Request)
		m.Original = &original
	}
	m.Roles = slices.Clone(m.Roles)
	for i, r := range m.Roles {
		m.Roles[i].Request = withoutTexts(r.Request)
	}
	return indented(m)
}

// deployment returns the installation's config without prompts and keys.
func (p *packer) deployment() config.Deployment {
	d := p.Deployment
	d.Engine.Request = *withoutTexts(&d.Engine.Request)
	d.Engines = maps.Clone(d.Engines)
	for name, e := range d.Engines {
		e.Request = *withoutTexts(&e.Request)
		d.Engines[name] = e
	}
	d.Defaults = runConfig(d.Defaults)
	return d
}

// runConfig returns the config of a run without prompts and keys: its own, and those of
// its judges.
func runConfig(c config.Run) config.Run {
	c.Request = withoutTexts(c.Request)
	c.Grades = slices.Clone(c.Grades)
	for i := range c.Grades {
		g := &c.Grades[i]
		g.Request = withoutTexts(g.Request)
		for _, text := range []*string{&g.System, &g.Prompt, &g.Rubric} {
			*text = withoutText(*text)
		}
	}
	return c
}

// withoutText returns how long a text is; "" for none.
func withoutText(text string) string {
	if text == "" {
		return ""
	}
	return fmt.Sprintf("(left out: %d bytes)", len(text))
}

// withoutTexts returns r without what may be a prompt or a key: the system message,
// the values of headers and of the URL's query, and all of extra but numbers and
// booleans. Names stay, also those of secrets.
// It returns nil for nil.
func withoutTexts(given *config.Request) *config.Request {
	if given == nil {
		return nil
	}
	r := *given
	r.System = withoutText(r.System)
	r.Headers, r.Query, r.Extra = maps.Clone(r.Headers), maps.Clone(r.Query), maps.Clone(r.Extra)
	for name, value := range r.Headers {
		if !strings.HasPrefix(value, config.SecretPrefix) {
			r.Headers[name] = leftOut
		}
	}
	for name := range r.Query {
		r.Query[name] = leftOut
	}
	for name, value := range r.Extra {
		switch value.(type) {
		case bool, int64, float64:
		default:
			r.Extra[name] = leftOut
		}
	}
	return &r
}
