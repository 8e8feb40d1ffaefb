package isolation

import (
	"syscall"
	"testing"
	"testing/synctest"
)

// A program is executed again while it is open for writing, and no longer than that.
func TestProgramThatIsOpenForWritingIsExecutedAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		errs  []error // of the executions; the last one repeats
		want  error
		tries int
	}{
		"executed":              {[]error{nil}, nil, 1},
		"released after two":    {[]error{syscall.ETXTBSY, syscall.ETXTBSY, nil}, nil, 3},
		"released, and missing": {[]error{syscall.ETXTBSY, syscall.ENOENT}, syscall.ENOENT, 2},
		"missing":               {[]error{syscall.ENOENT}, syscall.ENOENT, 1},
		"never released":        {[]error{syscall.ETXTBSY}, syscall.ETXTBSY, busyTries},
	} {
		synctest.Test(t, func(t *testing.T) {
			tries := 0
			err := untilReleased(func() error {
				tries++
				return test.errs[min(tries, len(test.errs))-1]
			})
			if err != test.want || tries != test.tries {
				t.Errorf("%s: %v after %d tries, want %v after %d", name, err, tries, test.want, test.tries)
			}
		})
	}
}
