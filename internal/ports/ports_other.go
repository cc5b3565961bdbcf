//go:build !linux || mips || mipsle || mips64 || mips64le || sparc64

package ports

import (
	"fmt"
	"net"
	"strings"
	"sync"
)

// Held says that a reserved port is free again before a server binds it, so that another process
// may take it.
const Held = false

// Reserve returns a loopback address that is reserved until release is called, which must happen
// before a server can bind it. All ports of a cluster are reserved before the first is released,
// so they differ.
func Reserve() (addr string, release func(), err error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("reserve a port: %w", err)
	}
	var once sync.Once
	return l.Addr().String(), func() { once.Do(func() { _ = l.Close() }) }, nil
}

// Taken reports whether another process took the port. It compares texts, those of Unix and of
// Windows, since etcd does not keep the error's type everywhere.
func Taken(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "address already in use") ||
		strings.Contains(err.Error(), "Only one usage of each socket address"))
}
