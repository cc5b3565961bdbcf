//go:build !race

package progtest

// Racing says that the race detector is on.
const Racing = false
