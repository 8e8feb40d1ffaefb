package notify

import (
	"context"
	"time"

	"rollout/shared/config"
	"rollout/shared/host"
	"rollout/shared/secret"
	"rollout/shared/webhook"
)

// ForDeployment returns the notifier of an installation, which delivers events to the cloud's
// own channels and to the webhook of the deployment's config. It is nil if there is neither.
// The channels come first: a webhook that does not answer delays nothing for them.
func ForDeployment(p host.Ports, d config.Deployment, secrets secret.Store, channels ...Destination) *Notifier {
	o := Options{Source: Source(d), Timeout: d.Notify.Timeout.Std(), Destinations: channels}
	if d.Cloud.Configured() {
		for _, pool := range d.Pools {
			o.Fleets = append(o.Fleets, pool.Name)
		}
	}
	if w := Webhook(p, d, secrets); w != nil {
		o.Destinations = append(o.Destinations, w)
	}
	return New(p, o)
}

// Source returns the source of an installation's events.
func Source(d config.Deployment) string { return "rollout/" + d.Bucket }

// Webhook returns the webhook of the deployment's config; nil if it names none.
func Webhook(p host.Ports, d config.Deployment, secrets secret.Store) *webhook.Webhook {
	if d.Notify.Webhook == "" {
		return nil
	}
	key := func(ctx context.Context) (secret.Value, error) { return secrets.Get(ctx, d.Notify.Secret) }
	return webhook.New(webhook.Options{Address: d.Notify.Webhook, Secret: key, Timeout: d.Notify.Timeout.Std(),
		Clock: p.Clock})
}

// onceFor bounds what a call of DeliverOnce sends.
const onceFor = 20 * time.Second

// DeliverOnce is Deliver for a function that a schedule calls each minute: what it has no time
// for waits for the next call.
func (n *Notifier) DeliverOnce(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, onceFor)
	defer cancel()
	_, err := n.Deliver(within)
	if within.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}
