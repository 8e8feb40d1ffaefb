package process

import (
	"context"
	"strings"

	"github.com/oklog/ulid/v2"

	"rollout/shared/capacity"
	"rollout/shared/core/health"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/record"
	"rollout/shared/text"
)

// longestReason bounds, in bytes, why a machine is given up.
const longestReason = 256

// ReportUnusable leaves word that nobody can work on this machine of the pool's fleet,
// and why, for who pauses runs for which machine after machine comes up in vain.
func ReportUnusable(ctx context.Context, p host.Ports, m capacity.Source, pool, reason string) error {
	machine, err := describe(ctx, m)
	if err != nil { // what is wrong with it may be why
		p.Log.InfoContext(ctx, "the machine can't be looked at", observe.KeyError, err)
	}
	now := p.Clock.Now().UTC()
	b := health.Heartbeat{Schema: record.Schema, Worker: ulid.Make().String(), Pool: pool, State: health.Gone, At: now, DueAt: now, Started: now,
		Host: machine.Host, PID: machine.PID, CPUs: machine.CPUs, GPUs: len(machine.GPUs), Instance: machine.Instance,
		FailureReason: text.Truncate(strings.ToValidUTF8(reason, ""), longestReason, "")}
	_, err = host.Save(ctx, p.Docs, record.HeartbeatKey(b.Worker), b, "")
	return err
}
