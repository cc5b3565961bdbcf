//go:build race

package chaos

// Slowness is how many times as long as usual things may take, at most, when nothing harms them: the
// race detector makes programs 2 to 20 times as slow (go.dev/doc/articles/race_detector), members and clients alike.
const Slowness = 4
