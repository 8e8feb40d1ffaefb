package filesystem

import (
	"slices"
	"testing"
)

func TestFlocksReturnsHoldersFromProcLocks(t *testing.T) {
	t.Parallel()
	const locks = `1: POSIX  ADVISORY  READ  11 fe:00:42 128 128
2: FLOCK  ADVISORY  WRITE 12 fe:00:42 0 EOF
2: -> FLOCK  ADVISORY  WRITE 13 fe:00:42 0 EOF
3: FLOCK  ADVISORY  WRITE 14 fe:00:142 0 EOF
4: FLOCK  ADVISORY  READ  15 00:1f:42 0 EOF
5: FLOCK  ADVISORY  WRITE -1 00:1f:42 0 EOF
6: FLOCK
`
	if got := flocks([]byte(locks), 42); !slices.Equal(got, []int{12, 15}) {
		t.Errorf("flocks = %v, want 12 and, on another disk, 15", got)
	}
}
