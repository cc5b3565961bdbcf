//go:build race

package progtest

// Racing says that the race detector is on. It makes programs 2 to 20 times as slow
// (go.dev/doc/articles/race_detector), so that an example may miss what it promises about time.
const Racing = true
