// Package subprocess starts programs that end with the process that started
// them, whatever ends it: a return, a panic, a timeout, or SIGKILL. Tests and
// benchmarks start all their servers, workers and commands with it, so that an
// interrupted test run leaves nothing running.
//
// On Linux the kernel kills the programs. On other systems a program outlives
// its starter unless the starter kills it, as with package os/exec.
//
// What a program starts itself is not covered: `rollout up` and `fakellm
// --restart` make their own children end with them.
package subprocess

import (
	"os/exec"
	"runtime"
	"sync"
)

// Start is cmd.Start for a program that is killed when this process ends. It
// may be called from several goroutines. Other fields of cmd.SysProcAttr are
// kept.
func Start(cmd *exec.Cmd) error {
	killWithParent(cmd)
	var err error
	onThread(func() { err = cmd.Start() })
	return err
}

// Run is cmd.Run for a program that is killed when this process ends.
func Run(cmd *exec.Cmd) error {
	if err := Start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

// EndWithGoTest makes this process, a test's, end when the `go test` that
// started it is killed; without it the tests would go on. It does nothing in a
// process that another program started. TestMain calls it.
func EndWithGoTest() {
	onThread(endWithGo)
}

// thread takes functions to run on one thread that lives as long as the process.
// The kernel signals a child when the thread that started it ends, not when
// the process ends, and the Go runtime may end any other thread.
var thread = sync.OnceValue(func() chan<- func() {
	calls := make(chan func())
	go func() {
		runtime.LockOSThread() // never unlocked
		for call := range calls {
			call()
		}
	}()
	return calls
})

// onThread runs f on that thread and waits until it returns.
func onThread(f func()) {
	done := make(chan struct{})
	thread() <- func() {
		defer close(done)
		f()
	}
	<-done
}
