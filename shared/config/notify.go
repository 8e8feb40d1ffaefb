package config

import (
	"net/url"
	"slices"
	"time"
)

// Notify says where the installation tells what happens to its runs and pools, besides the
// channel that each cloud has of its own. Only a deployment has it: addresses that a run names
// are never called.
type Notify struct {
	// Webhook is the address to which events are posted; "" posts none.
	Webhook string `toml:"webhook"`
	// Secret is the name of the secret that signs the events; required with Webhook.
	Secret string `toml:"secret"`
	// Timeout is the longest attempt to post an event; default: 10s.
	Timeout Duration `toml:"timeout"`
}

// Bounds of Notify.Timeout: an attempt must end within a call of a cloud's function.
const (
	minNotifyTimeout = Duration(time.Second)
	maxNotifyTimeout = Duration(15 * time.Second)
)

// DefaultNotify returns a deployment that posts no events.
func DefaultNotify() Notify { return Notify{Timeout: Duration(10 * time.Second)} }

// TellsEvents reports whether the installation tells people what happens: in a cloud always, by
// the cloud's own channel, elsewhere by a webhook.
func (d Deployment) TellsEvents() bool { return d.Cloud.Configured() || d.Notify.Webhook != "" }

// check checks the address and its secret. inCloud demands TLS: a function calls the address
// over the internet.
func (n Notify) check(c *checker, at string, inCloud bool, allowed []string) {
	if n.Timeout < minNotifyTimeout || n.Timeout > maxNotifyTimeout {
		c.add(at+".timeout", "must be %s to %s, is %s", minNotifyTimeout.Std(), maxNotifyTimeout.Std(), n.Timeout.Std())
	}
	if n.Webhook == "" {
		if n.Secret != "" {
			c.add(at+".secret", "signs the events of a webhook: name its address as webhook, or remove it")
		}
		return
	}
	n.checkAddress(c, at+".webhook", inCloud)
	if n.Secret == "" {
		c.add(at+".secret", "missing: name the secret that signs the events, so that the receiver knows them")
		return
	}
	c.label(at+".secret", n.Secret, maxSecret, "")
	if !slices.Contains(allowed, n.Secret) {
		c.add(at+".secret", "%s is not in the allowlist: add it to secrets", quote(n.Secret))
	}
}

// checkAddress checks the address of a webhook. It is not repeated: its query may hold a token.
func (n Notify) checkAddress(c *checker, at string, inCloud bool) {
	u, err := url.Parse(n.Webhook)
	switch {
	case len(n.Webhook) > maxText || err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		c.add(at, "must be an address such as \"https://example.com/rollout\"")
	case u.User != nil:
		c.add(at, "must not hold a user or password: the receiver knows events by their signature")
	case u.Fragment != "":
		c.add(at, "must not have a fragment: remove what follows #")
	case inCloud && u.Scheme != "https":
		c.add(at, "must begin with https:// in a cloud")
	}
}
