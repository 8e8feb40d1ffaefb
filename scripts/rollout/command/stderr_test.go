package command

import (
	"os"
	"testing"
)

// A reader of the standard error that goes away fails no command.
func TestStandardErrorSurvivesItsReader(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close() // nothing is lost by it
	to := surviving(w)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := to.Write([]byte("a line\n")); n != 7 || err != nil {
		t.Errorf("wrote %d bytes, %v", n, err)
	}
	other := surviving(&failing{})
	if _, err := other.Write([]byte("x")); err == nil {
		t.Error("another failure is lost")
	}
}

type failing struct{}

func (*failing) Write([]byte) (int, error) { return 0, os.ErrClosed }
