package train

import (
	"time"

	"rollout/gpuworker/training"
	"rollout/shared/core/health"
)

// pace measures how fast a training is and how long it takes to stop.
type pace struct {
	lastStep   time.Time
	longest    time.Duration // of recent steps; it decays
	snapshot   time.Duration // that the last snapshot took
	tokens     int64
	steps      int
	from, next mark // rates are taken since from; next replaces it
}

// mark is the work done by a time.
type mark struct {
	at     time.Time
	steps  int
	tokens int64
}

// window is the least span of the rates; they are taken over one to two of it.
const window = 5 * time.Second

// addStep adds a step that ended now. A step without tokens begins the
// measurement.
func (p *pace) addStep(now time.Time, tokens int) {
	if !p.lastStep.IsZero() {
		p.longest = max(now.Sub(p.lastStep), p.longest*15/16)
	}
	p.lastStep = now
	if tokens == 0 {
		p.from = mark{at: now}
		p.next = p.from
		return
	}
	p.steps++
	p.tokens += int64(tokens)
	if now.Sub(p.next.at) >= window {
		p.from, p.next = p.next, mark{now, p.steps, p.tokens}
	}
}

// rates returns steps and tokens a second.
func (p *pace) rates(now time.Time) (steps, tokens float64) {
	d := now.Sub(p.from.at).Seconds()
	if d <= 0 {
		return 0, 0
	}
	return float64(p.steps-p.from.steps) / d, float64(p.tokens-p.from.tokens) / d
}

// reportStep reports the training's progress for heartbeats.
func (t *execution) reportStep(r training.Report, loss *float64) {
	now := t.cfg.Clock.Now()
	t.addStep(now, r.Tokens)
	h := health.Training{Step: r.Step, Steps: r.Steps, Loss: loss}
	h.StepRate, h.TokenRate = t.rates(now)
	t.shard.ReportTraining(h)
	t.shard.ReportStopTime(t.longest + t.snapshot)
}

// addSnapshot adds how long a snapshot took. That time is not part of a step.
func (t *execution) addSnapshot(d time.Duration) {
	t.snapshot = d
	t.lastStep = t.cfg.Clock.Now()
	t.shard.ReportStopTime(t.longest + t.snapshot)
}
