package cloudrun

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"rollout/events"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/queue"
)

// Push is a message that a subscription pushed.
type Push struct {
	Subscription string // its id. Example: "rollout-plan"
	ID           string
	Attempt      int // of its deliveries, from 1; 1 if the subscription does not count them
	Attributes   map[string]string
	Data         []byte
}

// Handler handles one push. A nil error acknowledges the message. Any other lets
// Pub/Sub deliver it again.
type Handler func(context.Context, Push) error

const (
	// maxPush bounds the body of a push. An event of the product has at most 64 KiB,
	// an entry of the audit log 256 KiB, each a third more in base64.
	maxPush = 1 << 20
	// handBack is when a service stops its work and hands the message back. Pub/Sub
	// waits for an answer for the ack deadline, which is at most 600 s.
	handBack = 540 * time.Second
)

// Pushes returns the service of push subscriptions: the handler of each, by its id.
// It accepts pushes of these subscriptions alone, and only if they come from the
// account.
func Pushes(log *slog.Logger, account string, subscriptions map[string]Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkCaller(r, account); err != nil {
			refuse(w, r, log, http.StatusForbidden, err)
			return
		}
		p, err := readPush(http.MaxBytesReader(w, r.Body, maxPush))
		if err != nil {
			refuse(w, r, log, http.StatusBadRequest, err)
			return
		}
		handle, ok := subscriptions[p.Subscription]
		if !ok {
			err := fault.New(fault.Denied, "the subscription %.80q does not belong to this function", p.Subscription)
			refuse(w, r, log, http.StatusForbidden, err)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), handBack)
		defer cancel()
		if err := handle(ctx, p); err != nil {
			log.WarnContext(ctx, "the message is delivered again", observe.KeyQueue, p.Subscription,
				observe.KeyMessage, p.ID, "attempt", p.Attempt, observe.KeyError, err)
			http.Error(w, "not done", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

// refuse answers a request that is not handled. The reason is for the log alone: the
// caller may be a stranger.
func refuse(w http.ResponseWriter, r *http.Request, log *slog.Logger, status int, why error) {
	log.WarnContext(r.Context(), "refused a request", "status", status, observe.KeyError, why)
	http.Error(w, http.StatusText(status), status)
}

// readPush parses the body of a push.
func readPush(body io.Reader) (Push, error) {
	var in struct {
		Message struct {
			Attributes map[string]string `json:"attributes"`
			Data       []byte            `json:"data"`
			ID         string            `json:"messageId"`
		} `json:"message"`
		Subscription string `json:"subscription"` // its resource name
		Attempt      int    `json:"deliveryAttempt"`
	}
	text, err := io.ReadAll(body)
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return Push{}, fault.New(fault.Invalid, "the push has more than %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return Push{}, fault.WithKind(fault.Unavailable, err, "read the push")
	}
	if err := json.Unmarshal(text, &in); err != nil {
		return Push{}, fault.WithKind(fault.Invalid, err, "read the push")
	}
	_, id, ok := strings.Cut(in.Subscription, "/subscriptions/")
	if !ok || in.Message.ID == "" {
		return Push{}, fault.New(fault.Invalid, "the request is not a push of Pub/Sub")
	}
	return Push{Subscription: id, ID: in.Message.ID, Attempt: max(1, in.Attempt), Attributes: in.Message.Attributes,
		Data: in.Message.Data}, nil
}

// Tasks returns the handler of a subscription with events of the product. It moves
// an event that can't be handled (Invalid) to the dead letters of the tasks queue.
func Tasks(p host.Ports, handle func(context.Context, events.Payload) error) Handler {
	return func(ctx context.Context, m Push) error {
		e, payload, err := events.Decode(m.Data)
		if err = fault.WithKind(fault.Invalid, err, "decode the event"); err == nil {
			err = handle(host.WithCause(observe.ContextWithTraceparent(ctx, e.Traceparent), e), payload)
		}
		if fault.Is(err, fault.Invalid) {
			return p.DeadLetter(ctx, host.TaskQueue, queue.Message{ID: m.ID, Body: m.Data}, err)
		}
		return err
	}
}
