package onlinewire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"rollout/shared/fault"
)

// maxPath is the longest path of a Unix socket that all systems take.
const maxPath = 100

// Listen makes the folder of a socket if it is missing, and listens there. Only the user who
// runs the process can connect. Close the listener to remove the socket.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fault.WithKind(fault.Unavailable, err, "make the folder of the socket")
	}
	short, free, err := shorten(path)
	if err != nil {
		return nil, err
	}
	defer free()
	l, err := new(net.ListenConfig).Listen(ctx, "unix", short)
	if err != nil {
		return nil, fault.WithKind(fault.Unavailable, err, "listen at %s", path)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // it knows the short path alone
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, fault.WithKind(fault.Unavailable, err, "protect the socket")
	}
	return socket{l, path}, nil
}

// socket is a listener that removes its file.
type socket struct {
	net.Listener
	path string
}

// Close implements net.Listener.
func (s socket) Close() error {
	_ = os.Remove(s.path) // the file may be gone with its folder
	return s.Listener.Close()
}

// Dial connects to a socket.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	short, free, err := shorten(path)
	if err != nil {
		return nil, err
	}
	defer free()
	return new(net.Dialer).DialContext(ctx, "unix", short)
}

// shorten returns a path that systems take for the same file, and what frees it after its
// use. A path beyond the limit leads over the open folder, which Linux alone can do.
func shorten(path string) (string, func(), error) {
	if len(path) <= maxPath {
		return path, func() {}, nil
	}
	if runtime.GOOS != "linux" {
		return "", nil, fault.New(fault.Invalid, "the path of the socket is longer than %d bytes: %s", maxPath, path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, fault.WithKind(fault.NotFound, err, "open the folder of the socket")
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), func() { _ = dir.Close() }, nil
}

// staleAge is how old a socket must be that is removed: a younger one may be on the way to
// listen.
const staleAge = time.Minute

// RemoveStale removes the sockets in a folder at which no process listens: those of workers
// that were killed.
func RemoveStale(ctx context.Context, folder string) {
	files, err := os.ReadDir(folder)
	if err != nil {
		return // there is nothing to remove
	}
	for _, f := range files {
		path := filepath.Join(folder, f.Name())
		info, err := f.Info()
		if err != nil || f.Type()&os.ModeSocket == 0 || time.Since(info.ModTime()) < staleAge {
			continue
		}
		conn, err := Dial(ctx, path)
		switch {
		case err == nil:
			_ = conn.Close()
		case errors.Is(err, syscall.ECONNREFUSED): // any other error says nothing about the process
			_ = os.Remove(path)
		}
	}
}
