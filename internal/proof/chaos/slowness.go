//go:build !race

package chaos

// Slowness is how many times as long as usual things may take, at most, when nothing harms them.
const Slowness = 1
