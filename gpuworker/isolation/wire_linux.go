package isolation

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"rollout/shared/fault"
)

// What the worker and its helper processes tell each other, each as one packet of JSON.
//
//	worker                       init                          launcher
//	  │── settings, on stdin ──────▶│ namespaces, mounts          │
//	  │◀─ mounted, with files ──────│                             │
//	  │   fills the work folder     │                             │
//	  │── spawn ───────────────────▶│── settings, on a pipe ─────▶│ limits, Landlock, seccomp
//	  │◀─ spawned ──────────────────│                             │
//	  │◀─ ready, with its pid ────────────────────────────────────│
//	  │   moves it to the cgroups   │                             │
//	  │── go ────────────────────────────────────────────────────▶│
//	  │◀─ exec, or failed ────────────────────────────────────────│ becomes the program
//	  │── term ────────────────────▶│ SIGTERM to all              ┆
//	  │◀─ sample … exited ──────────│ waits for it ◀──────────────┘
//
// The end of the worker closes the channels, which ends init, and with it all the rest.
type message struct {
	Kind string `json:"kind"`
	Text string `json:"text,omitempty"` // of failed

	// Of exited.
	Code   int    `json:"code,omitempty"`
	Signal string `json:"signal,omitempty"`
	// Of sample and exited, where no cgroup tells it.
	CPU       time.Duration `json:"cpu,omitempty"`
	Memory    int64         `json:"memory,omitempty"`
	Processes int           `json:"processes,omitempty"`
}

const (
	kindMounted = "mounted"
	kindSpawn   = "spawn"
	kindSpawned = "spawned"
	kindReady   = "ready"
	kindGo      = "go"
	kindExec    = "exec"
	kindFailed  = "failed"
	kindTerm    = "term"
	kindSample  = "sample"
	kindExited  = "exited"
)

// maxText bounds the text of a message, so that it fits a packet.
const maxText = 16 << 10

// maxFiles is how many files a message may bring: the scratch folder and the forwards.
const maxFiles = 64

// channel sends and receives messages. Several goroutines may send while one receives.
type channel struct{ conn *net.UnixConn }

// newChannels returns the worker's end of a pair, and the file of the other end for a child.
func newChannels() (channel, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return channel{}, nil, fault.WithKind(fault.Unavailable, err, "make a pair of sockets")
	}
	other := os.NewFile(uintptr(fds[1]), "channel")
	// The kernel adds the sender's pid to what this end receives, as this process sees it.
	err = unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	if err == nil {
		var c channel
		if c, err = openChannel(uintptr(fds[0])); err == nil {
			return c, other, nil
		}
	}
	unix.Close(fds[0])
	other.Close()
	return channel{}, nil, fault.WithKind(fault.Unavailable, err, "open a channel")
}

// openChannel returns the channel on a descriptor, which it takes over.
func openChannel(fd uintptr) (channel, error) {
	file := os.NewFile(fd, "channel")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return channel{}, err
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return channel{}, errors.New("not a Unix socket")
	}
	return channel{conn: unixConn}, nil
}

func (c channel) close() error { return c.conn.Close() }

// send sends a message with files.
func (c channel) send(m message, files ...*os.File) error {
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, file := range files {
			fds[i] = int(file.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	_, _, err := c.conn.WriteMsgUnix(encode(m), rights, nil)
	return err
}

// encode returns the message as a packet.
func encode(m message) []byte {
	m.Text = m.Text[:min(len(m.Text), maxText)]
	packet, err := json.Marshal(m)
	if err != nil {
		panic(err) // a message has nothing that JSON cannot say
	}
	return packet
}

func decode(packet []byte) (m message, err error) {
	err = json.Unmarshal(packet, &m)
	return m, err
}

// receive returns the next message, its files, and its sender's pid; io.EOF after the last.
func (c channel) receive() (m message, files []*os.File, pid int, err error) {
	text := make([]byte, 8*maxText)
	extra := make([]byte, unix.CmsgSpace(4*maxFiles)+unix.CmsgSpace(unix.SizeofUcred))
	n, extras, _, _, err := c.conn.ReadMsgUnix(text, extra)
	if err != nil {
		return m, nil, 0, err
	}
	if n == 0 {
		return m, nil, 0, io.EOF
	}
	if files, pid, err = parseExtras(extra[:extras]); err == nil {
		m, err = decode(text[:n])
	}
	if err != nil {
		closeAll(files)
		return m, nil, pid, err
	}
	return m, files, pid, nil
}

func closeAll(files []*os.File) {
	for _, file := range files {
		file.Close()
	}
}

func parseExtras(extra []byte) (files []*os.File, pid int, err error) {
	parts, err := unix.ParseSocketControlMessage(extra)
	if err != nil {
		return nil, 0, err
	}
	for _, part := range parts {
		switch part.Header.Type {
		case unix.SCM_RIGHTS:
			fds, err := unix.ParseUnixRights(&part)
			if err != nil {
				return files, pid, err
			}
			for _, fd := range fds {
				unix.CloseOnExec(fd)
				files = append(files, os.NewFile(uintptr(fd), "received"))
			}
		case unix.SCM_CREDENTIALS:
			cred, err := unix.ParseUnixCredentials(&part)
			if err != nil {
				return files, pid, err
			}
			pid = int(cred.Pid)
		}
	}
	return files, pid, nil
}

// failedError is the text of a failed message.
type failedError string

func (f failedError) Error() string { return string(f) }

// expect receives the next message, which is of the kind. A failed one is returned as an error.
func (c channel) expect(ctx context.Context, kind string) (files []*os.File, pid int, err error) {
	defer context.AfterFunc(ctx, func() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) })()
	m, files, pid, err := c.receive()
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, io.EOF):
		err = fault.New(fault.Unavailable, "the sandbox ended before it was %s", kind)
	case err == nil && m.Kind == kindFailed:
		err = failedError(m.Text)
	case err == nil && m.Kind != kind:
		err = fault.New(fault.Internal, "the sandbox said %q instead of %q", m.Kind, kind)
	}
	if err != nil {
		closeAll(files)
		return nil, pid, err
	}
	return files, pid, nil
}

// expectEnd waits until the other side has closed the channel, which a program does when it
// starts. A failed message becomes an error.
func (c channel) expectEnd(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) })()
	m, _, _, err := c.receive()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil && m.Kind == kindFailed:
		return failedError(m.Text)
	}
	return fault.WithKind(fault.Internal, err, "the launcher said %q before it ended", m.Kind)
}
