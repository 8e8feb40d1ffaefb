package config

import (
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"rollout/shared/text"
)

// Bounds of a run's settings.
const (
	MaxShardItems    = 65536 // items a shard
	MaxSamplingN     = 128   // sampling.n
	MaxStopSequences = 16    // sampling.stop
	maxTokens        = 1<<31 - 1
	maxLogprobs      = 20
	maxFailures      = 100
	maxDollars       = 1_000_000_000 // of a run's budget
	maxName          = 128           // bytes of a run's name
	maxText          = 2048          // bytes of a URI, path or stop string
)

// Check returns the problems of a run that was built in code or changed by
// flags. The error is Invalid and holds Problems.
func (r Run) Check() error {
	c := newChecker("", nil)
	r.check(c, "")
	return c.err()
}

// check adds the problems of a run whose path is at: "" or "defaults".
func (r Run) check(c *checker, at string) {
	c.schema(under(at, "schema_version"), r.SchemaVersion)
	c.kind(under(at, "kind"), r.Kind)
	c.text(under(at, "name"), r.Name, maxName)
	r.Model.check(c, under(at, "model"))
	r.Sampling.check(c, under(at, "sampling"))
	r.Request.check(c, under(at, "request"), false)
	c.dialect(under(at, "input.dialect"), r.Input.Dialect)
	if r.Input.MaxUnpacked < 1 {
		c.add(under(at, "input.max_unpacked"), "must be at least 1 byte, is %d", r.Input.MaxUnpacked)
	}
	r.Shard.check(c, under(at, "shard"))
	r.Limits.check(c, under(at, "limits"))
	r.Scheduling.check(c, under(at, "run"))
	r.Dedupe.check(c, under(at, "dedupe"))
	checkGrades(c, under(at, "grade"), r.Grades, r.Dedupe)
	r.Facts.check(c, under(at, "facts"))
	r.checkRollout(c, at)
	r.checkTrials(c, at)
	r.checkTraining(c, at)
}

// optionalKey is a key or table that only some kinds of run may have.
type optionalKey struct {
	name string
	set  bool
}

// checkTraining reports the settings that a training lacks, and those that
// belong to another kind of run.
func (r Run) checkTraining(c *checker, at string) {
	if r.Kind != KindTrain {
		for _, f := range []optionalKey{{"algorithm", r.Algorithm != nil}, {"snapshot", r.Snapshot != nil}} {
			if f.set {
				c.add(under(at, f.name),
					"applies only to a training, and this run is a %s: set kind = %q, or remove the table",
					nounOf(r.Kind), KindTrain)
			}
		}
		return
	}
	if at != "" {
		c.add(under(at, "kind"), "%q can't be the default kind of runs: set it in the .toml beside the dataset", KindTrain)
	}
	if r.Algorithm == nil {
		c.add(under(at, "algorithm"), "missing: add [algorithm] with its kind, and [algorithm.%s] or [algorithm.%s]",
			AlgorithmSFT, AlgorithmRM)
	} else {
		r.Algorithm.check(c, under(at, "algorithm"), datasetBeside)
	}
	r.Snapshots().check(c, under(at, "snapshot"))
	for _, f := range []optionalKey{
		{"model", r.Model != Model{}},
		{"request", !r.Request.IsZero()},
		{"sampling", string(r.Sampling.Canonical()) != "{}"},
		{"input.dialect", r.Input.Dialect != ""},
		{"shard", r.Shard != DefaultShard()},
		{"run.priority", r.Scheduling.Priority != nil},
		{"dedupe", r.Dedupe != Dedupe{}},
		{"grade", len(r.Grades) > 0},
		{"facts", r.Facts != Facts{}},
		{"limits.tokens", r.Limits.Tokens != 0},
		{"limits.dollars", r.Limits.Dollars != 0},
		{"limits.failed_shards_in_a_row", r.Limits.FailedShardsInARow != 0},
		{"limits.failed_share", r.Limits.FailedShare != 0},
	} {
		if f.set {
			c.add(under(at, f.name), "applies only to prompts, and this run is a training: remove it")
		}
	}
}

func (d Dedupe) check(c *checker, at string) {
	if d.Sampled && !d.Enabled {
		c.add(at+".sampled", "has no effect without dedupe.enabled: set enabled = true, or remove it")
	}
}

func (m Model) check(c *checker, at string) {
	c.text(at+".uri", m.URI, maxText)
	c.text(at+".revision", m.Revision, maxText)
	c.text(at+".tokenizer", m.Tokenizer, maxText)
}

func (s Sampling) check(c *checker, at string) {
	c.float(at+".temperature", s.Temperature, atLeast(0), atMost(2))
	c.float(at+".top_p", s.TopP, above(0), atMost(1))
	c.integer(at+".top_k", s.TopK, -1, math.MaxInt32, "; -1 switches it off")
	c.float(at+".min_p", s.MinP, atLeast(0), atMost(1))
	c.float(at+".repetition_penalty", s.RepetitionPenalty, above(0), atMost(10))
	c.float(at+".presence_penalty", s.PresencePenalty, atLeast(-2), atMost(2))
	c.float(at+".frequency_penalty", s.FrequencyPenalty, atLeast(-2), atMost(2))
	c.integer(at+".max_tokens", s.MaxTokens, 1, maxTokens, "")
	c.integer(at+".n", s.N, 1, MaxSamplingN, "")
	c.integer(at+".logprobs", s.Logprobs, 0, maxLogprobs, "")
	if s.Seed != nil && *s.Seed < 0 {
		c.add(at+".seed", "must not be negative, is %d: leave it out to have one derived for each item", *s.Seed)
	}
	if len(s.Stop) > MaxStopSequences {
		c.add(at+".stop", "has %d strings, at most %d are allowed", len(s.Stop), MaxStopSequences)
	}
	for i, stop := range s.Stop {
		if stop == "" {
			c.add(element(at+".stop", i), "is empty: remove it")
		}
		if len(stop) > maxText {
			c.add(element(at+".stop", i), "has %d bytes, at most %d are allowed", len(stop), maxText)
		}
	}
	if s.Stream {
		c.add(at+".stream", "a batch does not stream its answers: remove it")
	}
}

func (s Shard) check(c *checker, at string) {
	c.integer(at+".items", &s.Items, 0, MaxShardItems, "; 0 chooses by the size of the input")
	if orders := []string{OrderInput, OrderPrefix}; s.Order != "" && !slices.Contains(orders, s.Order) {
		c.choice(at+".order", "order", s.Order, text.Nearest(orders, s.Order), orders)
	}
}

func (l Limits) check(c *checker, at string) {
	c.notNegative(at+".deadline", l.Deadline)
	c.notNegative(at+".grace", l.Grace)
	if l.Tokens < 0 {
		c.add(at+".tokens", "must not be negative, is %d; 0 means no budget", l.Tokens)
	}
	if !(l.Dollars >= 0 && l.Dollars <= maxDollars) {
		c.add(at+".dollars", "must be between 0 and %d dollars, is %v; 0 means no budget", maxDollars, l.Dollars)
	}
	c.integer(at+".failures", &l.Failures, 1, maxFailures, "")
	if l.FailedShardsInARow < 0 {
		c.add(at+".failed_shards_in_a_row", "must not be negative, is %d; 0 is off", l.FailedShardsInARow)
	}
	if !(l.FailedShare >= 0 && l.FailedShare < 1) {
		c.add(at+".failed_share", "must be a share from 0 to below 1, is %v; 0 is off", l.FailedShare)
	}
}

func (c *checker) schema(field string, version int) {
	if version != SchemaVersion {
		c.add(field, "must be %d, is %d", SchemaVersion, version)
	}
}

func (c *checker) kind(field, kind string) {
	if kinds := Kinds(); !slices.Contains(kinds, kind) {
		c.choice(field, "kind of run", kind, text.Nearest(kinds, kind), kinds)
	}
}

// dialect checks a name of package dialect. With "" the dialect is detected.
func (c *checker) dialect(field, name string) {
	names := []string{"plain", "openai", "bedrock", "vertex"}
	if name != "" && !slices.Contains(names, name) {
		c.choice(field, "dialect", name, text.Nearest(names, name), names)
	}
}

// choice adds the problem of a value that is missing from the names, for an
// optional field; hint is the name that it may misspell.
func (c *checker) choice(field, what, value, hint string, names []string) {
	if hint != "" {
		c.add(field, "%s is not a valid %s; did you mean %q?", quote(value), what, hint)
		return
	}
	c.add(field, "%s is not a valid %s: use %s, or leave it out", quote(value), what, strings.Join(names, ", "))
}

// text checks a string that is shown to users and sent to engines.
func (c *checker) text(field, s string, limit int) {
	switch {
	case len(s) > limit:
		c.add(field, "has %d bytes, at most %d are allowed", len(s), limit)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl):
		c.add(field, "has control characters: remove them")
	case strings.TrimSpace(s) != s:
		c.add(field, "begins or ends with white space: remove it")
	}
}

// under returns the path below at. Unlike join, it never quotes the path.
func under(at, path string) string {
	if at == "" {
		return path
	}
	return at + "." + path
}
