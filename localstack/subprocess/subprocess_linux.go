package subprocess

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// killWithParent asks the kernel to kill the program when the thread that
// starts it ends; see prctl(2), PR_SET_PDEATHSIG.
func killWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// endWithGo asks the kernel for the same for this process, if its parent is the
// go command.
func endWithGo() {
	parent := os.Getppid()
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent))
	if err != nil || strings.TrimSpace(string(name)) != "go" {
		return
	}
	_, _, failed := syscall.RawSyscall6(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0, 0)
	if failed != 0 {
		fmt.Fprintln(os.Stderr, "subprocess: this process may outlive go test:", failed)
		return
	}
	if os.Getppid() != parent { // it ended before the kernel was asked
		os.Exit(1)
	}
}
