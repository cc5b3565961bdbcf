//go:build !windows && (!unix || aix || solaris)

package embedtest

import (
	"errors"
	"os"
)

// tryLock returns an error: this system has no file lock that ends with the process.
func tryLock(*os.File) error { return errors.ErrUnsupported }
