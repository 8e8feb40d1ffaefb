package bundle

import (
	"context"
	"fmt"
	"maps"
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
	if m.Config.Request != nil {
		r := withoutTexts(*m.Config.Request)
		m.Config.Request = &r
	}
	return indented(m)
}

// deployment returns the installation's config without prompts and keys.
func (p *packer) deployment() config.Deployment {
	d := p.Deployment
	d.Engine.Request = withoutTexts(d.Engine.Request)
	d.Engines = maps.Clone(d.Engines)
	for name, e := range d.Engines {
		e.Request = withoutTexts(e.Request)
		d.Engines[name] = e
	}
	if d.Defaults.Request != nil {
		r := withoutTexts(*d.Defaults.Request)
		d.Defaults.Request = &r
	}
	return d
}

// withoutTexts returns r without what may be a prompt or a key: the system message,
// the values of headers and of the URL's query, and all of extra but numbers and
// booleans. Names stay, also those of secrets.
func withoutTexts(r config.Request) config.Request {
	if r.System != "" {
		r.System = fmt.Sprintf("(left out: %d bytes)", len(r.System))
	}
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
	return r
}
