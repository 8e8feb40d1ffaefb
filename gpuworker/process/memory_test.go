package process

import "testing"

func TestTheMemoryLimitFitsWhatTheContainerAllows(t *testing.T) {
	t.Parallel()
	for allowed, want := range map[uint64]int64{
		0:         96 << 20, // no limit
		64 << 20:  48 << 20,
		128 << 20: 96 << 20,
		64 << 30:  96 << 20,
	} {
		if got := limitWithin(allowed); got != want {
			t.Errorf("of %d bytes %d are for the heap, want %d", allowed, got, want)
		}
	}
}
