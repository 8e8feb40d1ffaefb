package config

import "time"

// Pipeline holds the settings of the workers of pools with ExecutorPipeline: each is a group
// of processes. The worker itself prepares and decodes; Ranks others generate.
type Pipeline struct {
	Stage string `toml:"stage"` // StageText or StageLatent; default: StageText
	Ranks int    `toml:"ranks"` // processes that generate, each with a part of the model; default: 2
	// Timeout is how long a rank may be silent before the group ends; default: 30s.
	Timeout Duration `toml:"timeout"`
	// Recompute is how StageLatent recomputes its cache: RecomputeOff, RecomputeContext or
	// RecomputeLatent; default: RecomputeOff.
	Recompute string `toml:"recompute"`
	// OutputDigest has the ranks compare a digest of each result.
	OutputDigest bool `toml:"output_digest"`
}

// Values of Pipeline.Stage.
const (
	StageText   = "text"   // ModelTiny
	StageLatent = "latent" // a stand-in for a generator of latents, without a model
)

// Values of Pipeline.Recompute.
const (
	RecomputeOff     = "off"
	RecomputeContext = "context" // from context frames of the worker
	RecomputeLatent  = "latent"  // from the latents themselves
)

// The bounds of a Pipeline.
const (
	maxRanks           = 8
	maxTextRanks       = 2 // a rank needs a head of ModelTiny of its own
	minPipelineTimeout = Duration(time.Second)
	maxPipelineTimeout = Duration(10 * time.Minute)
)

// DefaultPipeline returns two ranks that generate text, and a timeout of 30 s.
func DefaultPipeline() Pipeline {
	return Pipeline{Stage: StageText, Ranks: 2, Timeout: Duration(30 * time.Second), Recompute: RecomputeOff}
}

func (p Pipeline) check(c *checker, at string) {
	if p.Stage != StageText && p.Stage != StageLatent {
		c.oneOf(at+".stage", "stage", p.Stage, []string{StageText, StageLatent})
	}
	most := maxRanks
	if p.Stage == StageText {
		most = maxTextRanks
	}
	c.integer(at+".ranks", &p.Ranks, 1, most, "")
	if p.Timeout < minPipelineTimeout || p.Timeout > maxPipelineTimeout {
		c.add(at+".timeout", "must be %s to %s, is %s", minPipelineTimeout.Std(), maxPipelineTimeout.Std(), p.Timeout.Std())
	}
	switch {
	case p.Recompute != RecomputeOff && p.Recompute != RecomputeContext && p.Recompute != RecomputeLatent:
		c.oneOf(at+".recompute", "kind of recompute", p.Recompute, []string{RecomputeOff, RecomputeContext, RecomputeLatent})
	case p.Recompute != RecomputeOff && p.Stage == StageText:
		c.add(at+".recompute", "the stage %q recomputes nothing: remove it", StageText)
	}
}

// checkPipelined adds the problems of a pool with ExecutorPipeline.
func (p Pool) checkPipelined(c *checker, at, provider string, stage string) {
	if provider != "" {
		c.add(at+".executor", "a pipeline is for an installation on one machine: use %q", ExecutorInfer)
	}
	if stage == StageText && p.Model != "" && p.Model != ModelTiny {
		c.add(at+".model", "%s can't run in a pipeline: set the model to %q", quote(p.Model), ModelTiny)
	}
	const asksNoServer = "a pipeline asks no server: remove it"
	if p.Engine != "" {
		c.add(at+".engine", asksNoServer)
	}
	if p.IgnoreServerLimits {
		c.add(at+".ignore_server_limits", asksNoServer)
	}
}
