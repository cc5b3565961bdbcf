package console

import (
	"net/http"
	"time"
)

// SetUnseen sets after how long without a viewer a console's watch ends.
func SetUnseen(h http.Handler, d time.Duration) {
	f := &h.(*console).follower
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unseen = d
}
