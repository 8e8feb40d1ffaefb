package config

import (
	"encoding/hex"
	"slices"
	"strings"

	"rollout/shared/text"
)

// Bounds of a training's settings.
const (
	maxMinibatch    = 4096 // a minibatch keeps its activations in memory; accumulation does not
	maxAccumulation = 65536
	maxSteps        = 1_000_000_000
	maxSeqLen       = 1 << 20
	maxKeepLast     = 10_000
	snapshotID      = 64 // hex digits
)

// datasetRule says whether the settings must name their dataset, or whether the
// dataset is the file beside the config.
type datasetRule bool

const (
	datasetNamed  datasetRule = true
	datasetBeside datasetRule = false
)

func (a Algorithm) check(c *checker, at string, rule datasetRule) {
	kinds := []string{AlgorithmSFT, AlgorithmRM}
	switch {
	case a.Kind == "" && a.SFT != nil && a.RM != nil:
		c.add(at+".kind", "missing: the file has settings of both kinds; name the one to use, %q or %q",
			AlgorithmSFT, AlgorithmRM)
		return
	case a.Kind == "":
		c.add(at+".kind", "missing: name what to train, %q or %q", AlgorithmSFT, AlgorithmRM)
		return
	case !slices.Contains(kinds, a.Kind):
		c.oneOf(at+".kind", "algorithm", a.Kind, kinds)
		return
	}
	if a.Kind != AlgorithmSFT && a.SFT != nil {
		c.add(at+".sft", "%s.kind is %q: remove this table", at, a.Kind)
	}
	if a.Kind != AlgorithmRM && a.RM != nil {
		c.add(at+".rm", "%s.kind is %q: remove this table", at, a.Kind)
	}
	switch {
	case a.Kind == AlgorithmSFT && a.SFT != nil:
		a.SFT.check(c, at+".sft")
	case a.Kind == AlgorithmRM && a.RM != nil:
		a.RM.check(c, at+".rm")
	default:
		c.add(at+"."+a.Kind, "missing: add [%s.%s] with base_model, dataset, optimizer and budget", at, a.Kind)
		return
	}
	a.Common().check(c, at+"."+a.Kind, rule)
}

func (s *SFT) check(c *checker, at string) {
	if kinds := []string{LossAssistantOnly, LossFull}; !slices.Contains(kinds, s.LossOn.Kind) {
		c.oneOf(at+".loss_on.kind", "choice of tokens", s.LossOn.Kind, kinds)
	}
	if kinds := []string{PackingOff, PackingOn}; !slices.Contains(kinds, s.Packing.Kind) {
		c.oneOf(at+".packing.kind", "packing", s.Packing.Kind, kinds)
	}
	c.integer(at+".packing.max_seq_len", &s.Packing.MaxSeqLen, 0, maxSeqLen, "; 0 is the model's context")
}

func (r *RM) check(c *checker, at string) {
	switch r.Head.Kind {
	case HeadBradleyTerry:
	case "pairwise_logistic":
		c.add(at+".head.kind", "%q is not available in this version: use %q", r.Head.Kind, HeadBradleyTerry)
	default:
		c.oneOf(at+".head.kind", "head", r.Head.Kind, []string{HeadBradleyTerry})
	}
	c.integer(at+".max_seq_len", &r.MaxSeqLen, 0, maxSeqLen, "; 0 is the model's context")
}

func (s CommonSettings) check(c *checker, at string, rule datasetRule) {
	s.BaseModel.check(c, at+".base_model.uri")
	c.count(at+".minibatch_size", s.Minibatch, maxMinibatch)
	c.count(at+".gradient_accumulation", s.Accumulation, maxAccumulation)
	if s.Seed < 0 {
		c.add(at+".seed", "must not be negative, is %d", s.Seed)
	}
	s.Dataset.check(c, at+".dataset", rule)
	s.Optimizer.check(c, at+".optimizer")
	if s.Budget.MaxSteps == 0 {
		c.add(at+".budget.max_steps",
			"must be at least 1, is 0 or missing: set the number of steps after which the training ends")
	}
	c.count(at+".budget.max_steps", s.Budget.MaxSteps, maxSteps)
	if o := s.Optimizer; o.Schedule != ScheduleConstant && o.WarmupSteps > s.Budget.MaxSteps && s.Budget.MaxSteps > 0 {
		c.add(at+".optimizer.warmup_steps",
			"must be at most budget.max_steps (%d), is %d: the schedule %q begins after the warm-up",
			s.Budget.MaxSteps, o.WarmupSteps, o.Schedule)
	}
}

// check accepts the models that the built-in trainer can train.
func (b BaseModel) check(c *checker, field string) {
	id, isSnapshot := strings.CutPrefix(b.URI, SnapshotPrefix)
	switch {
	case b.URI == "":
		c.add(field, "missing: name %q, or %q and the id of a snapshot", ModelTiny, SnapshotPrefix)
	case b.URI == ModelTiny:
	case isSnapshot:
		if _, err := hex.DecodeString(id); err != nil || len(id) != snapshotID || strings.ToLower(id) != id {
			c.add(field, "%s is not a snapshot: write the id of %d digits of 0-9 and a-f that `rollout snapshot list` shows",
				quote(b.URI), snapshotID)
		}
	default:
		c.add(field, "%s can't be trained here: this trainer trains %q and its own snapshots (%q and an id). "+
			"Another model needs a trainer outside rollout, with the model's weights, its framework and a GPU, "+
			"which this version cannot run", quote(b.URI), ModelTiny, SnapshotPrefix)
	}
}

func (d Dataset) check(c *checker, at string, rule datasetRule) {
	if d.Kind != DatasetJSONL {
		c.oneOf(at+".kind", "dataset", d.Kind, []string{DatasetJSONL})
	}
	switch {
	case rule == datasetNamed && d.Path == "":
		c.add(at+".path", "missing: name the file of rows, such as \"data/rows.jsonl\"")
	case rule == datasetBeside && d.Path != "":
		c.add(at+".path", "a run's dataset is the .jsonl file beside this one: remove the path")
	}
	c.text(at+".path", d.Path, maxText)
}

func (o Optimizer) check(c *checker, at string) {
	if kinds := []string{OptimizerSGD, OptimizerAdamW}; !slices.Contains(kinds, o.Kind) {
		c.oneOf(at+".kind", "optimizer", o.Kind, kinds)
	}
	if !(o.LR > 0) || o.LR > maxLR { // the first condition is also true for NaN
		c.add(at+".lr", "must be above 0 and at most %d, is %v", maxLR, o.LR)
	}
	c.float(at+".weight_decay", &o.WeightDecay, atLeast(0), atMost(1))
	if len(o.Betas) != 2 {
		c.add(at+".betas", "must list two numbers, such as [0.9, 0.999], lists %d", len(o.Betas))
	}
	for i := range o.Betas {
		c.float(element(at+".betas", i), &o.Betas[i], atLeast(0), below(1))
	}
	c.float(at+".eps", &o.Eps, above(0), atMost(1))
	c.integer(at+".warmup_steps", &o.WarmupSteps, 0, maxSteps, "")
	if names := []string{ScheduleConstant, ScheduleLinear, ScheduleCosine}; !slices.Contains(names, o.Schedule) {
		c.oneOf(at+".schedule", "schedule", o.Schedule, names)
	}
	c.float(at+".max_grad_norm", &o.MaxGradNorm, atLeast(0), atMost(maxNorm))
}

const (
	maxLR   = 1000      // far above any useful learning rate; keeps a step finite in float32
	maxNorm = 1_000_000 // far above the norm of any useful gradient
)

func (s Snapshots) check(c *checker, at string) {
	c.integer(at+".every_steps", &s.Every, 0, maxSteps, "; 0 saves only at the end")
	c.integer(at+".keep_last", &s.KeepLast, 1, maxKeepLast, "")
}

// count checks a number that must be at least 1.
func (c *checker) count(field string, n, high int) {
	if n < 1 {
		c.add(field, "must be at least 1, is %d", n)
	}
	c.integer(field, &n, 1, high, "")
}

// oneOf adds the problem of a value that is missing from the names, for a
// required field. See choice for an optional one.
func (c *checker) oneOf(field, what, value string, names []string) {
	if hint := text.Nearest(names, value); hint != "" {
		c.add(field, "%s is not a valid %s; did you mean %q?", quote(value), what, hint)
		return
	}
	c.add(field, "%s is not a valid %s: use %s", quote(value), what, strings.Join(names, " or "))
}
