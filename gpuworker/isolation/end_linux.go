package isolation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"rollout/shared/fault"
)

// end waits until nothing is left of the command's processes.
func (e *execution) end(last message) error {
	e.stop()
	if e.process != nil {
		if last.Kind != kindExited {
			_ = e.process.Kill() // it may have ended
		}
		if _, err := e.process.Wait(); err != nil {
			return fault.WithKind(fault.Internal, err, "wait for a sandbox")
		}
	}
	if !e.started.IsZero() {
		e.outcome.Wall = time.Since(e.started)
	}
	if e.level == Trusted {
		e.group.killAll()
	}
	for _, l := range e.listeners {
		l.Close()
	}
	e.closeChannels()
	e.background.Wait()
	return nil
}

func (e *execution) closeChannels() {
	for _, c := range []channel{e.ctl, e.gate} {
		if c.conn != nil {
			_ = c.close()
		}
	}
}

// judge returns the outcome, and removes what the sandbox was made of.
func (e *execution) judge(ctx context.Context, last message, err error) (Outcome, error) {
	ran := !e.started.IsZero() && err == nil
	var use usage
	if ran {
		use = e.usage()
		e.outcome.CPU, e.outcome.PeakMemory = use.cpu, use.peak
	}
	defer e.closeScratch()
	if err == nil && e.noRoom { // whatever the command did then
		err = fault.WithKind(fault.Exhausted, unix.ENOSPC, "the machine's disk was full")
	}
	if removeErr := e.group.remove(); removeErr != nil {
		return e.outcome, errors.Join(err, removeErr)
	}
	e.output.wait() // no process is left that could write
	e.diagnostics.wait()
	var failed setupError
	switch {
	case ctx.Err() != nil && e.outcome.Verdict == "" && !(ran && last.Kind == kindExited):
		e.outcome.Verdict = Canceled
	case errors.As(err, &failed):
		e.outcome.Verdict, e.outcome.Reason = SetupFailed, failed.Error()
		return e.outcome, nil
	case err != nil:
		return e.outcome, fault.WithKind(kindOr(err, fault.Unavailable), err, "set up a sandbox%s", e.saidText())
	case e.outcome.Verdict != "": // this process ended it
	case last.Kind != kindExited:
		return e.outcome, fault.New(fault.Unavailable, "the first process of a sandbox was killed%s", e.saidText())
	default:
		e.judgeEnd(last, use)
	}
	var collectErr error
	if ran {
		collectErr = e.collect()
	}
	if e.outcome.Verdict == Canceled {
		return e.outcome, errors.Join(fault.Wrap(ctx.Err(), "run a command in a sandbox"), collectErr)
	}
	return e.outcome, collectErr
}

// judgeEnd decides on a program that ended by itself.
func (e *execution) judgeEnd(last message, use usage) {
	e.outcome.Verdict = e.command.Limits.ended(last.Code, last.Signal, use)
	select {
	case <-e.output.over:
		e.outcome.Verdict = OutputLimit
	default:
	}
	switch e.outcome.Verdict {
	case Exited:
		e.outcome.ExitCode = last.Code
	case Signaled:
		e.outcome.Signal = last.Signal
	}
}

// saidText is what init wrote before it ended, for an error's text.
func (e *execution) saidText() string {
	if len(e.said.Kept) == 0 {
		return ""
	}
	return fmt.Sprintf(" (it wrote %q)", e.said.Kept[:min(len(e.said.Kept), 1000)])
}

func (e *execution) closeScratch() {
	if e.scratch != nil {
		e.scratch.Close()
	}
	if e.scratchFile != nil {
		e.scratchFile.Close()
	}
}

// collect copies the command's folders out.
func (e *execution) collect() error {
	l := e.command.Limits
	for _, folder := range []struct {
		name, to string
		links    bool
		into     *Collected
	}{{"out", e.command.Out, false, &e.outcome.Out}, {"work", e.command.Work, true, &e.outcome.Work}} {
		if folder.to == "" {
			continue
		}
		// Files of the level Full were made in a file system of their own. On a disk, a second name
		// may be of a file that is not the command's.
		c := copier{files: l.OutFiles, bytes: l.OutBytes, links: folder.links, hardLinks: e.level == Full}
		if err := e.copyOut(&c, folder.name, folder.to, folder.into); err != nil {
			return fault.Wrap(err, "collect the folder %s of a sandbox", folder.name)
		}
	}
	return nil
}

func (e *execution) copyOut(c *copier, name, to string, into *Collected) error {
	info, err := e.scratch.Lstat(name)
	if err == nil {
		err = makeReadable(e.scratch, name, info, 0o700)
	}
	if err != nil {
		return fault.WithKind(fault.Unavailable, err, "look at it")
	}
	src, err := e.scratch.OpenRoot(name)
	if err != nil {
		return fault.WithKind(fault.Unavailable, err, "open it")
	}
	defer src.Close()
	dst, err := os.OpenRoot(to)
	if err != nil {
		return fault.WithKind(fault.NotFound, err, "open the folder for it")
	}
	defer dst.Close()
	*into, err = c.copy(dst, src)
	return err
}
