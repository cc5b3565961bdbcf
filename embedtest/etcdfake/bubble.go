package etcdfake

import (
	_ "unsafe" // for go:linkname
)

// valCtxCh is a channel of clientv3's on which nothing is ever sent: what the contexts of
// its watches return as Done, since they are not to end with their parents. It is made
// when the program begins, outside of every bubble of testing/synctest, and a goroutine that
// waits for it keeps the bubble's time from passing. A nil channel says the same ("never
// done", as the context package has it) and belongs to no bubble.
//
//go:linkname valCtxCh go.etcd.io/etcd/client/v3.valCtxCh
var valCtxCh chan struct{}

func init() { valCtxCh = nil }
