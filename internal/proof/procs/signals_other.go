//go:build !unix

package procs

import (
	"errors"
	"os"
)

// Stop returns errors.ErrUnsupported.
func Stop(*os.Process) error { return errors.ErrUnsupported }

// Continue returns errors.ErrUnsupported.
func Continue(*os.Process) error { return errors.ErrUnsupported }
