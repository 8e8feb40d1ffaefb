package isolation

import (
	"context"
	"io"
	"net"
	"sync"
)

// maxConnections bounds the connections of a forward at one time. Others wait in the backlog of
// the listener.
const maxConnections = 64

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
			return // closed
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
