//go:build !unix

package child

import "errors"

// CanPause tells whether a process can be stopped and continued here.
const CanPause = false

// Stop stops the process. It returns an error where that cannot be done.
func (p *Process) Stop() error { return errors.ErrUnsupported }

// Continue lets it go on. It returns an error where that cannot be done.
func (p *Process) Continue() error { return errors.ErrUnsupported }
