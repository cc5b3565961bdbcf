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

// Reserve returns a loopback address that is reserved until release is called. Its socket is
// bound but never listens, so it accepts no connections; a server that sets SO_REUSEPORT binds
// the same port beside it, again after each restart. The kernel assigns such a port to no process
// that asks for any port. The error is the system's.
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

// Taken reports whether a server failed because another process took its port. It returns false
// where ports are held.
func Taken(error) bool { return false }
