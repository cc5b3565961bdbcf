//go:build !unix

package child

import "errors"

// CanPause reports whether this system can stop and continue a process.
const CanPause = false

// Stop returns an error: errors.ErrUnsupported.
func (p *Process) Stop() error { return errors.ErrUnsupported }

// Continue returns an error: errors.ErrUnsupported.
func (p *Process) Continue() error { return errors.ErrUnsupported }
