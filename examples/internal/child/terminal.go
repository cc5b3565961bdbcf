package child

import "os"

// IsTerminal tells whether somebody looks at the file while it is written.
func IsTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
