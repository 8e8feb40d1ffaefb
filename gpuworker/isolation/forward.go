package isolation

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/net/netutil"
)

// maxConnections bounds the connections of a forward at one time. Others wait in the backlog of
// the listener.
const maxConnections = 64

// acceptAgain is the wait after a connection could not be accepted.
const acceptAgain = 10 * time.Millisecond

// answer answers the connections of the listener until ctx ends.
func (f Forward) answer(ctx context.Context, l net.Listener) {
	if f.Serve == nil {
		forward(ctx, l, f.Socket)
		return
	}
	_ = f.Serve(ctx, netutil.LimitListener(l, maxConnections)) // the command sees its connections closed
}

// forward connects each connection of the listener to the Unix socket, until ctx ends. It
// returns when all are closed. A command opens connections as it likes, so that nothing here
// grows with their number.
func forward(ctx context.Context, l net.Listener, socket string) {
	var connections sync.WaitGroup
	defer connections.Wait()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	slots := make(chan struct{}, maxConnections)
	for {
		slots <- struct{}{}
		conn, err := l.Accept()
		if err != nil {
			<-slots
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			// The process has no file left, or the other side has gone. The command lives on.
			select {
			case <-time.After(acceptAgain):
				continue
			case <-ctx.Done():
				return
			}
		}
		connections.Go(func() {
			defer func() { <-slots }()
			connect(ctx, conn, socket)
		})
	}
}

// connect copies between the connection and the socket until both sides have ended, or ctx.
func connect(ctx context.Context, conn net.Conn, socket string) {
	defer conn.Close()
	var dialer net.Dialer
	up, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return // the command sees its connection closed
	}
	defer up.Close()
	defer context.AfterFunc(ctx, func() { conn.Close(); up.Close() })()
	var both sync.WaitGroup
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // an error ends the connection, which both sides see
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}
	both.Go(func() { pass(up, conn) })
	both.Go(func() { pass(conn, up) })
	both.Wait()
}
