//go:build !unix

package work

import "time"

// processorTime is not known on this system; rows of it have no figures.
func processorTime() (used time.Duration, known bool) { return 0, false }
