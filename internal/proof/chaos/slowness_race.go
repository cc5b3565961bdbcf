//go:build race

package chaos

// Slowness is how many times as long as usual things may take, at most, when nothing harms them: under the race
// detector each instruction of the members and of their clients takes about ten times as long.
const Slowness = 4
