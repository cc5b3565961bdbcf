//go:build linux || darwin

package embedtest

import "syscall"

// freeSpace returns the bytes that this user may still write below a directory, and
// whether the system has said so.
func freeSpace(dir string) (free int64, known bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil || st.Blocks == 0 {
		return 0, false // some file systems have no limit, or do not report one
	}
	return int64(st.Bavail) * int64(st.Bsize), true
}
