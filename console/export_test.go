package console

import (
	"maps"
	"net/http"
	"slices"
	"time"
)

// Remembered returns how many readings a console remembers.
func Remembered(h http.Handler) int {
	s := &h.(*console).shared
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pages)
}

// SetNow sets the clock of a console that has no viewers yet.
func SetNow(h http.Handler, now func() time.Time) { h.(*console).now = now }

// SetUnseen sets after how long without a viewer a console's watch ends.
func SetUnseen(h http.Handler, d time.Duration) {
	f := &h.(*console).follower
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unseen = d
}

// Follows reports whether a console follows the namespace.
func Follows(h http.Handler) bool { return h.(*console).follower.active() != nil }

// SetSampling sets the time between two moments of the history of a console that has no viewers yet.
func SetSampling(h http.Handler, every time.Duration) { h.(*console).history.every = every }

// LivePages returns the paths of the pages that are JSON as well.
func LivePages() []string {
	live := maps.Clone(views)
	maps.DeleteFunc(live, func(_ string, v view) bool { return !v.live })
	return slices.Sorted(maps.Keys(live))
}

// PagesOf are the pages of alerts that are about no name.
var PagesOf = pagesOf
