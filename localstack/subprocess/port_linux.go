package subprocess

import (
	"fmt"
	"sync"
	"syscall"
)

// ReservePort reserves a free port of 127.0.0.1 for a program that can only be told its port.
// Until release is called, only programs that ask for this very port get it, one after the
// other: the kernel never gives it to a program that asks for any port.
func ReservePort() (port int, release func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, fmt.Errorf("reserve a port: %w", err)
	}
	release = sync.OnceFunc(func() { _ = syscall.Close(fd) }) // it has no data
	if port, err = bindToAny(fd); err != nil {
		release()
		return 0, nil, fmt.Errorf("reserve a port: %w", err)
	}
	return port, release, nil
}

// bindToAny binds a socket to a free port, without listening: with SO_REUSEADDR, which servers
// set as well, another socket may be bound to that port and listen.
func bindToAny(fd int) (port int, err error) {
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	in4, ok := at.(*syscall.SockaddrInet4)
	if !ok {
		return 0, fmt.Errorf("the address is a %T", at)
	}
	return in4.Port, nil
}
