package main

import (
	"fmt"
	"time"
)

// line is how far a run is.
func (s progress) line(c config, elapsed time.Duration) string {
	return fmt.Sprintf("%3d of %d succeeded, %d holding, %2d waiting, %2d killed, %4.1f s", s.succeeded, c.executions, s.holding, s.waiting, s.killed, elapsed.Seconds())
}
