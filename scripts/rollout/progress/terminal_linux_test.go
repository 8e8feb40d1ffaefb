package progress

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"rollout/shared/clock"
)

// noTerminals skips a test at a desk that has no pseudo terminals; CI must have
// them.
func noTerminals(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal("no pseudo terminals here: ", err)
	}
	t.Skip("no pseudo terminals here: ", err)
}

// terminal opens a pseudo terminal, 80 columns wide.
func terminal(t *testing.T) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		noTerminals(t, err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		noTerminals(t, err)
	}
	t.Cleanup(func() { _ = tty.Close() })
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	return tty
}

func TestADumbTerminalGetsPlainLines(t *testing.T) { // it sets a variable: not parallel
	tty := terminal(t)
	for name, draws := range map[string]bool{"xterm-256color": true, "": true, "dumb": false} {
		t.Setenv("TERM", name)
		view := NewView(tty, clock.System{})
		_, isBar := view.(*bar)
		view.Close()
		if SupportsANSI(tty) != draws || isBar != draws || !IsTerminal(tty) {
			t.Errorf("TERM=%q: Draws is %v, a bar %v, a terminal %v", name, SupportsANSI(tty), isBar, IsTerminal(tty))
		}
	}
	if SupportsANSI(&bytes.Buffer{}) {
		t.Error("a buffer is no terminal")
	}
}
