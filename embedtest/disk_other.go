//go:build !linux && !darwin

package embedtest

// freeSpace reports that the free space is unknown.
func freeSpace(string) (free int64, known bool) { return 0, false }
