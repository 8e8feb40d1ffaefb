package command

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"rollout/events"
	"rollout/functions/notify"
	"rollout/shared/fault"
)

func notifyCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "notify",
		Short: "Send a test event to the webhook of the installation's config",
		Long: "Sends an event of the type " + string(events.TypeNotifyTest) + " to the address of\n" +
			"[notify] webhook, signed as all events are, and says what the receiver answered. It is sent from here: in\n" +
			"a cloud, functions send events from elsewhere.",
		Args: arguments(0),
	}
	location := locationFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		in, err := e.open(c, *location)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, in.Close()) }()
		d := in.Deployment
		webhook := notify.Webhook(in.Ports, d, in.Secrets)
		if webhook == nil {
			return &fault.Error{Kind: fault.Invalid, Err: errors.New("the installation's config names no webhook"),
				Remedy: "add [notify] with webhook and secret to its rollout.toml"}
		}
		now := e.Clock.Now()
		event, err := events.Encode(events.NotifyTest{Text: "a test by `rollout notify`"},
			events.Meta{ID: ulid.Make().String(), Source: notify.Source(d), Subject: "notify/test", Time: now})
		if err != nil {
			return err
		}
		if err := webhook.Deliver(c.Context(), event); err != nil {
			return fault.Wrap(err, "send a test event")
		}
		at, err := url.Parse(d.Notify.Webhook)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(e.Out, "%s has taken the test event\n", at.Host)
		return err
	}
	return c
}
