//go:build !linux

package lease

import "time"

// sinceBoot returns 0: no clock shows it.
func sinceBoot() time.Duration { return 0 }
