package child

import "os"

// IsTerminal reports whether f is a terminal or another character device.
func IsTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
