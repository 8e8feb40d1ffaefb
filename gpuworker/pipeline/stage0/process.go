package stage0

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"rollout/gpuworker/pipeline/group"
	"rollout/gpuworker/pipeline/link"
	"rollout/shared/fault"
)

// process is a rank of the mesh. It ends when its standard input does.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{}
}

// lastWords is how long a rank's reason may take to arrive after its process has ended.
const lastWords = 100 * time.Millisecond

// stopTime is how long the ranks of a closed group may take to end by themselves.
const stopTime = 2 * time.Second

// start starts the processes and connects to them.
func (g *Group) start(ctx context.Context) (err error) {
	g.procs = make([]*process, g.o.Ranks+1)
	defer func() {
		if err != nil {
			g.stop(ctx, false)
		}
	}()
	credential, err := link.NewCredential(time.Now())
	if err != nil {
		return err
	}
	in, out := make([]io.Writer, g.o.Ranks+1), make([]*bufio.Reader, g.o.Ranks+1)
	for rank := 1; rank <= g.o.Ranks; rank++ {
		cmd := exec.Command(g.o.Command[0], g.o.Command[1:]...) // #nosec G204 -- this program
		if cmd.Stderr = g.o.Stderr; cmd.Stderr == nil {
			cmd.Stderr = os.Stderr
		}
		stdin, err := cmd.StdinPipe()
		if err != nil {
			return fault.WithKind(fault.Internal, err, "start rank %d", rank)
		}
		stdout, w, err := os.Pipe()
		if err != nil {
			return fault.WithKind(fault.Unavailable, err, "start rank %d", rank)
		}
		defer stdout.Close() // the ranks say nothing after their addresses
		cmd.Stdout = w
		err = cmd.Start()
		_ = w.Close()
		if err != nil {
			return fault.WithKind(fault.Unavailable, err, "start rank %d", rank)
		}
		p := &process{cmd, stdin, make(chan struct{})}
		g.procs[rank], in[rank], out[rank] = p, stdin, bufio.NewReader(stdout)
		if err := stdout.SetReadDeadline(time.Now().Add(g.o.Timeout)); err != nil {
			return fault.WithKind(fault.Internal, err, "start rank %d", rank)
		}
		go func() {
			err := cmd.Wait()
			close(p.ended)
			time.Sleep(lastWords)
			g.fail(fault.New(fault.Unavailable, "rank %d of the pipeline has ended: %v", rank, err))
		}()
	}
	setup := group.Setup{Session: ulid.Make().String(), Ranks: g.o.Ranks + 1, Timeout: g.o.Timeout, Credential: credential,
		Stage: g.o.Contract.Name, Digest: g.o.Digest, Debug: g.o.Log.Enabled(ctx, slog.LevelDebug)}
	g.handles, err = group.Connect(ctx, setup, in, out, g.o.Parity(setup))
	if err != nil {
		return fault.Wrap(err, "start the pipeline")
	}
	g.o.Log.InfoContext(ctx, "pipeline started", "session", setup.Session, "ranks", setup.Ranks, "stage", setup.Stage)
	return nil
}

// PIDs returns the process ids of the ranks, from rank 1.
func (g *Group) PIDs() (out []int) {
	for _, p := range g.procs[1:] {
		out = append(out, p.cmd.Process.Pid)
	}
	return out
}

// stop waits for the ranks to end, and kills those that do not. Ranks that were told to shut
// down get time for it before their standard input ends.
func (g *Group) stop(ctx context.Context, told bool) {
	timeout := time.After(stopTime)
	if told {
		for _, p := range g.procs[1:] {
			select {
			case <-p.ended:
			case <-timeout:
				timeout = time.After(0)
			}
		}
		timeout = time.After(stopTime)
	}
	for _, p := range g.procs {
		if p != nil {
			_ = p.stdin.Close()
		}
	}
	for rank, p := range slices.Backward(g.procs) {
		if p == nil {
			continue
		}
		select {
		case <-p.ended:
		case <-timeout:
			g.o.Log.WarnContext(ctx, "rank does not end and is killed", "rank", rank)
			_ = p.cmd.Process.Kill()
			timeout = time.After(0)
			<-p.ended
		}
	}
}
