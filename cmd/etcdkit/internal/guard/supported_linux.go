package guard

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// fewest is how many processes and threads a user needs for the front process, the guard and a command on two cores.
const fewest = 20

// room returns an error if a user may not have so many processes and threads as a guard needs: Go's runtime ends a program
// with a dump that gets none. The limit is no bound for root. Others of the user count too, so there may be no room all the same.
func room(user int, limit uint64) error {
	if user == 0 || limit >= fewest {
		return nil
	}
	return fmt.Errorf("ulimit -u permits %d processes and threads: a command under a guard needs %d, and those that its user has besides", limit, fewest)
}

// Supported returns an error if /proc does not show what a command starts, or if there is no room for it.
func Supported() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &limit); err == nil {
		if err := room(os.Getuid(), limit.Cur); err != nil {
			return err
		}
	}
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return errors.New("/proc is not mounted, or is that of another PID namespace: the processes that a command starts cannot be found there; mount it for this namespace ('unshare --mount-proc')")
	}
	return nil
}
