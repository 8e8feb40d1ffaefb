package memory_test

import (
	"testing"

	"rollout/shared/document"
	"rollout/shared/document/documenttest"
	"rollout/shared/memory"
	"rollout/shared/retry"
)

func TestDocuments(t *testing.T) {
	t.Parallel()
	documenttest.Run(t,
		func(*testing.T) document.Store { return memory.NewDocuments() },
		documenttest.Features{Watch: true})
}

func TestReliableDocuments(t *testing.T) {
	t.Parallel()
	documenttest.Run(t,
		func(*testing.T) document.Store { return document.Reliable(memory.NewDocuments(), retryOnce()) },
		documenttest.Features{Watch: true})
}

// retryOnce is the default policy with two tries.
func retryOnce() retry.Policy { return retry.Policy{Tries: 2} }
