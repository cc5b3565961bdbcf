package etcdfake

import (
	"bytes"
	"runtime"
	"slices"
	"strings"
	_ "unsafe" // for go:linkname

	"go.etcd.io/etcd/api/v3/version"
)

// valCtxCh is a channel of clientv3's on which nothing is ever sent: what the contexts of
// its watches return as Done, since they are not to end with their parents. It is made
// when the program begins, outside of every bubble of testing/synctest, and a goroutine that
// waits for it keeps the bubble's time from passing. A nil channel says the same ("never
// done", as the context package has it) and belongs to no bubble.
//
//go:linkname valCtxCh go.etcd.io/etcd/client/v3.valCtxCh
var valCtxCh chan struct{}

// lines are the lines of etcd's client that are known to have valCtxCh, with this type and
// this meaning, and nothing else that waits outside of a bubble.
var lines = []string{"3.6", "3.7"}

func init() {
	if known(version.Version) {
		valCtxCh = nil
	}
}

// known reports whether a version of etcd's client is of one of the lines. The binary of a
// test has no versions of modules; the client requires the API of its own version, whose
// package has one.
func known(client string) bool {
	return slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(client, line+".") })
}

// checkBubble fails a test that makes a server in a bubble, if the time of that bubble
// would not pass.
func checkBubble(tb TB, client string) {
	tb.Helper()
	if !known(client) && inBubble() {
		tb.Fatalf("etcdfake: make a server in a bubble of testing/synctest: etcd's client has version %s, and with a watch of that version the time of a bubble may never pass: require go.etcd.io/etcd/client/v3 of %s, use a newer etcdkit, or call etcdfake.New outside of a bubble, where time is real", client, strings.Join(lines, " or "))
	}
}

// inBubble reports whether the calling goroutine is in a bubble, as its stack says.
func inBubble() bool {
	header, _, _ := bytes.Cut(stack(), []byte("\n"))
	return bytes.Contains(header, []byte("synctest bubble"))
}

func stack() []byte {
	b := make([]byte, 128)
	return b[:runtime.Stack(b, false)]
}
