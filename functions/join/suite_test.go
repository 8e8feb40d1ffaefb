package join

import (
	"testing"

	"rollout/shared/blob"
	"rollout/shared/blob/blobtest"
	"rollout/shared/document"
	"rollout/shared/document/documenttest"
	"rollout/shared/queue"
	"rollout/shared/queue/queuetest"
	"rollout/shared/retry"
	"rollout/shared/secret"
	"rollout/shared/secret/secrettest"
)

func TestDocumentsOverTheNetworkConform(t *testing.T) {
	t.Parallel()
	documenttest.Run(t, func(t *testing.T) document.Store {
		f := newFixture(t)
		f.unguarded()
		return document.Reliable(f.join(t, "").Documents(), retry.Policy{})
	}, documenttest.Features{})
}

func TestObjectsOverTheNetworkConform(t *testing.T) {
	t.Parallel()
	blobtest.Run(t, func(t *testing.T) blob.Store {
		f := newFixture(t)
		f.unguarded()
		return blob.Reliable(f.join(t, "").Objects(), retry.Policy{})
	}, blobtest.Features{InMemory: true})
}

func TestQueuesOverTheNetworkConform(t *testing.T) {
	t.Parallel()
	queuetest.Run(t, func(t *testing.T) queue.Queues {
		f := newFixture(t)
		f.unguarded()
		return queue.Reliable(f.join(t, "").Queues(), retry.Policy{})
	}, queuetest.Features{})
}

func TestSecretsOverTheNetworkConform(t *testing.T) {
	t.Parallel()
	secrettest.Run(t, func(t *testing.T, allow []string, set map[string]string) secret.Store {
		f := newFixture(t, func(o *Options) {
			o.Secrets = secretsOf(set)
			o.Deployment.Secrets = allow
			o.Deployment.Notify.Secret = ""
		})
		return f.join(t, "").Secrets()
	})
}
