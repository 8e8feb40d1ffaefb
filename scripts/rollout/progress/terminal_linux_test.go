package progress

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"rollout/scripts/rollout/terminal"
	"rollout/shared/clock"
)

// skipWithoutTerminal skips the test if pseudo terminals are unavailable. In CI it fails the test.
func skipWithoutTerminal(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal("pseudo terminals are unavailable: ", err)
	}
	t.Skip("pseudo terminals are unavailable: ", err)
}

// openTerminal opens a pseudo terminal that is 80 columns wide.
func openTerminal(t *testing.T) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		skipWithoutTerminal(t, err)
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
		skipWithoutTerminal(t, err)
	}
	t.Cleanup(func() { _ = tty.Close() })
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	return tty
}

func TestDumbTerminalGetsPlainLines(t *testing.T) { // not parallel: it sets an environment variable
	tty := openTerminal(t)
	for name, ansi := range map[string]bool{"xterm-256color": true, "": true, "dumb": false} {
		t.Setenv("TERM", name)
		view := NewView(tty, clock.System{}, false)
		_, isBar := view.(*bar)
		view.Close()
		if terminal.SupportsANSI(tty) != ansi || isBar != ansi || !terminal.Is(tty) {
			t.Errorf("TERM=%q: SupportsANSI is %v, has a bar: %v, IsTerminal is %v",
				name, terminal.SupportsANSI(tty), isBar, terminal.Is(tty))
		}
	}
	if terminal.SupportsANSI(&bytes.Buffer{}) {
		t.Error("SupportsANSI is true for a buffer")
	}
}
