//go:build !linux

package subprocess

import "net"

// ReservePort returns a port of 127.0.0.1 that is free now, for a program that can only be
// told its port. On this system another program may take it first.
func ReservePort() (port int, release func(), err error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, nil, err
	}
	port = l.Addr().(*net.TCPAddr).Port
	return port, func() {}, l.Close()
}
