//go:build linux && !mips && !mipsle && !mips64 && !mips64le && !sparc64

package ports

import (
	"fmt"
	"os"
	"syscall"
)

// soReusePort is SO_REUSEPORT, which package syscall lacks on amd64.
const soReusePort = 0xf

// Held says that a reserved port stays reserved while a server uses it.
const Held = true

// Reserve returns a loopback address that belongs to us until release is
// called. The socket behind it is bound but never listens, so it takes no
// connections; a server that sets SO_REUSEPORT binds the same port next to it,
// again and again when it restarts. The kernel gives a port held this way to
// nobody who asks for just any port. The error is the system's.
func Reserve() (addr string, release func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("reserve a port: %w", os.NewSyscallError("socket", err))
	}
	release = func() { _ = syscall.Close(fd) }
	defer func() {
		if err != nil {
			release()
		}
	}()
	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, soReusePort, 1); err != nil {
		return "", nil, fmt.Errorf("reserve a port: %w", os.NewSyscallError("setsockopt", err))
	}
	if err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return "", nil, fmt.Errorf("reserve a port: %w", os.NewSyscallError("bind", err))
	}
	sa, err := syscall.Getsockname(fd)
	if err != nil {
		return "", nil, fmt.Errorf("reserve a port: %w", os.NewSyscallError("getsockname", err))
	}
	return fmt.Sprintf("127.0.0.1:%d", sa.(*syscall.SockaddrInet4).Port), release, nil
}

// Taken tells whether a server failed because somebody else was faster. Never,
// where ports are held.
func Taken(error) bool { return false }
