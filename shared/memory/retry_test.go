package memory_test

import "rollout/shared/retry"

// retryOnce is the default policy with fewer tries.
func retryOnce() retry.Policy { return retry.Policy{Tries: 2} }
