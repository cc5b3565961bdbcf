package verb

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// readerGone returns true when the other end of a pipe or a socket was closed, and false when ctx has ended.
func readerGone(ctx context.Context, out *os.File) bool {
	every := time.NewTicker(200 * time.Millisecond)
	defer every.Stop()
	for {
		at := []unix.PollFd{{Fd: int32(out.Fd())}} //nolint:gosec // a descriptor is small
		if n, err := unix.Poll(at, 0); err == nil && n > 0 && at[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
			return true
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return false
		}
	}
}
