package host_test

import (
	"fmt"
	"testing"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/queue"
)

// No pool's queue is that of another's dead letters.
func TestAPoolsQueueHoldsNoDeadLetters(t *testing.T) {
	t.Parallel()
	for _, pool := range []string{"small", queue.DeadLetterQueue("small")} {
		_, err := config.ParseDeployment("d.toml", fmt.Appendf(nil, "schema_version = 1\n[[pool]]\nname = %q\nmodel = 'm'\n", pool))
		if dead := queue.IsDeadLetterQueue(host.WorkQueue(pool)); dead != fault.Is(err, fault.Invalid) {
			t.Errorf("the pool %s: %v", pool, err)
		}
	}
}
