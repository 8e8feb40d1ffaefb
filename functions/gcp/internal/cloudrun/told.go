package cloudrun

import (
	"context"
	"encoding/json"
	"log/slog"

	"rollout/functions/notify"
)

// Told is the message of the log line of an event that people were told. The alert policy of
// infra/gcp that sends e-mails looks for it.
const Told = "an event is told"

// Logged returns a destination of events that logs each one, once the other destination has it:
// Pub/Sub itself sends no e-mails, but Cloud Monitoring sends one for such a line.
func Logged(to notify.Destination, log *slog.Logger) notify.Destination { return logged{to, log} }

type logged struct {
	notify.Destination
	log *slog.Logger
}

// Deliver delivers the event, and then logs it.
func (l logged) Deliver(ctx context.Context, event []byte) error {
	if err := l.Destination.Deliver(ctx, event); err != nil {
		return err
	}
	l.log.InfoContext(ctx, Told, "event", json.RawMessage(event))
	return nil
}
