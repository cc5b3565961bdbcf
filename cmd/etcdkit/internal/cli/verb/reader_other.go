//go:build !linux

package verb

import (
	"context"
	"os"
)

// readerGone returns false when ctx has ended: there, the next line that is written notices that its reader is gone.
func readerGone(ctx context.Context, _ *os.File) bool {
	<-ctx.Done()
	return false
}
