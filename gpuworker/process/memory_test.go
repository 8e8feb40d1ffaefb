package process

import "testing"

func TestMemoryLimitFitsAllowedMemory(t *testing.T) {
	t.Parallel()
	for allowed, want := range map[uint64]int64{
		0:         64 << 20, // no limit
		64 << 20:  48 << 20,
		80 << 20:  60 << 20,
		128 << 20: 64 << 20,
		64 << 30:  64 << 20,
	} {
		if got := limitWithin(allowed); got != want {
			t.Errorf("of %d bytes the heap gets %d, want %d", allowed, got, want)
		}
	}
}
