//go:build !unix

package main

import (
	"errors"
	"os"
)

// canPause tells whether a process can be stopped and continued here.
const canPause = false

func stopProcess(*os.Process) error { return errors.ErrUnsupported }

func continueProcess(*os.Process) error { return errors.ErrUnsupported }
