package process

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// parentPoll is how often a worker checks that its parent is alive.
const parentPoll = 2 * time.Second

// NotifyShutdown returns a channel that gets the reason of the first request to
// drain: SIGTERM, SIGINT, SIGHUP (a closed terminal), or the end of the parent
// process with the given pid (0 watches none).
//
// The context asked ends with that first request. Use it for work before there is
// anything to drain. The context all ends with a SIGINT after the first request,
// which ends everything at once. A further SIGTERM does not: a parent that drains
// sends one in addition to the terminal's SIGINT.
//
// It also makes writes to a closed pipe (`| head -1`) return an error instead of
// ending the process.
func NotifyShutdown(ctx context.Context, parent int) (all, asked context.Context, reasons <-chan string) {
	ctx, cancel := context.WithCancel(ctx)
	asked, ask := context.WithCancel(ctx)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signal.Notify(signals, syscall.SIGHUP)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	first := make(chan string, 1)
	request := func(reason string) {
		ask()
		select {
		case first <- reason:
		default:
		}
	}
	go func() {
		defer cancel()
		defer signal.Stop(signals)
		tick := time.NewTicker(parentPoll)
		defer tick.Stop()
		repeated := false
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-signals:
				if repeated && s == syscall.SIGINT {
					cancel()
					return
				}
				repeated = true
				request("signal " + s.String())
			case <-tick.C:
				if parent != 0 && os.Getppid() != parent {
					request("the parent process has ended")
				}
			}
		}
	}()
	return ctx, asked, first
}
