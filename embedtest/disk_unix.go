//go:build linux || darwin

package embedtest

import "syscall"

// freeSpace returns how many bytes this user may still write below a directory, and whether
// that is known.
func freeSpace(dir string) (free int64, known bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil || st.Blocks == 0 {
		return 0, false // some file systems have no limit, or do not report one
	}
	return int64(st.Bavail) * int64(st.Bsize), true
}
