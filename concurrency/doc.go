// Package concurrency bounds what a fleet of processes does at the same time: at
// most N of us (Semaphore), one of us (Mutex), or one of us for long (Election). It
// shares its name, but no code, with go.etcd.io/etcd/client/v3/concurrency; import it
// under another name where both are used.
//
// # Guaranteed
//
// Every admission fits the limit in force at its own revision of etcd, and a call
// returns a permit only if its own request was admitted. That rests on etcd's
// revision order alone and on no clock. (This is level G1 of five; all are in
// https://github.com/etcdkit/etcdkit/blob/main/docs/guarantees.md.)
//
// A Txn that carries a permit's Guard takes effect only while the permit's key
// exists. The Token of a mutex's permit, and of an election's term, rises from holder to
// holder.
//
// A permit's context ends, with a cause, before etcd gives the permit to another.
// This is the one promise that rests on clocks: on the local one and etcd's
// running at the same rate within the session's margin. Evict, TakeOver, a lease
// revoked by hand, a stopped and continued leader of etcd, and a virtual machine
// that is paused with all of its clocks are exceptions: in these cases
// the context ends as soon as the session learns of it. If the key of one permit is
// deleted by hand, only Release and the guard report it.
//
// A crashed holder's permit is usable again after the session's TTL and half a
// second, longer where etcd changes its leader. Waiters are served in the order
// of their requests.
//
// A permit that was valid when its work ended was not lost, even if etcd cannot confirm
// its release: Do returns what the function returned, and Permit.Release an
// *UnconfirmedError. Until the release arrives, or the lease ends, the permit counts as
// held.
//
// # Not guaranteed
//
// That outside effects exclude each other: a process can be paused between
// looking at its permit and acting, so an effect that must not happen twice needs
// a check of the token at its target, or a Txn with the guard. That outside
// effects happen exactly once.
//
// # Terms
//
// A session is a lease in etcd that this process keeps alive, with what hangs on
// it. A request is one call's place in a queue; it waits or it holds a permit. The
// token of a request is its create revision in etcd: its age, its name and its
// fencing token. A notice is a message from another process that it has ended a
// request of this one.
package concurrency
