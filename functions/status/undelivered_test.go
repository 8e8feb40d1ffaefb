package status

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/core/notification"
	"rollout/shared/record"
)

func TestUndeliveredAreEventsThatADestinationDoesNotTake(t *testing.T) {
	t.Parallel()
	pending := []record.PendingEvent{{Sequence: 2}, {Sequence: 3}}
	for name, c := range map[string]struct {
		delivery notification.Delivery
		dropped  int
		want     *Undelivered
	}{
		"not tried yet": {delivery: notification.Delivery{Sequence: 1}},
		"being sent":    {delivery: notification.Delivery{Sequence: 1, ClaimedUntil: time.Now()}},
		"failed once": {delivery: notification.Delivery{Sequence: 1, Attempts: 1, Problem: "no connection"},
			want: &Undelivered{Waiting: 2, To: "webhook", Problem: "no connection"}},
		"the next one waits": {delivery: notification.Delivery{Sequence: 2, Attempts: 4, Problem: "busy"}, dropped: 5,
			want: &Undelivered{Waiting: 1, Dropped: 5, To: "webhook", Problem: "busy"}},
		"given up": {delivery: notification.Delivery{Sequence: 3, GivenUp: 1, Problem: "gone"},
			want: &Undelivered{GivenUp: 1, To: "webhook", Problem: "gone"}},
	} {
		got := undelivered(record.Notifications{Sequence: 3, Pending: pending, Dropped: c.dropped,
			Deliveries: map[string]notification.Delivery{"webhook": c.delivery}})
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}
