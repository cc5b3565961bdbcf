// Package concurrency limits what a fleet of processes does at the same time: at most N
// holders (Semaphore), for each key and in total (KeyedLimiter), one holder (Mutex), or one long-lived leader
// (Election); and how often something begins (RateLimiter).
//
// It shares its name, but no code, with go.etcd.io/etcd/client/v3/concurrency. An editor that adds the import
// can choose etcd's for a file in which only names of both are used: Session, Mutex, Election and their New
// functions. Then NewSession does not compile, since only that of this package has a context. Where both are
// used, import etcd's under another name.
//
// # Guaranteed
//
// Every admission fits the limit that is in force at the admission's own revision of etcd,
// and a call returns a permit only if its own request was admitted. This rests on etcd's
// revision order alone and on no clock. (It is level G1 of five; all are described in
// https://github.com/etcdkit/etcdkit/blob/main/docs/guarantees.md.)
//
// A Txn that carries a permit's Guard takes effect only while the permit's key exists. The
// Token of a mutex's permit, and of an election's term, rises from holder to holder.
//
// A permit's context ends, with a cause, before etcd grants the permit to another request.
// This promise rests on clocks, as that of a RateLimiter does: the local clock and etcd's must run at the
// same rate within the session's margin. Exceptions are a permit that another process ends
// (Evict, EvictToken, TakeOver, ReleaseID), a lease or a presence key that is removed by hand,
// two faults of etcd's leader, and a virtual machine that is paused with all of its clocks:
// then the context ends as soon as the session learns of it. docs/guarantees.md lists them
// all. If the key of a single permit is deleted by hand, only Release and the guard report it.
//
// If a holder crashes, the next request is admitted about a TTL and half a second after the
// last renewal reached etcd, and later if etcd changes its leader meanwhile. Requests are
// admitted in their order.
//
// A permit that was valid when its work ended was not lost, even if etcd cannot confirm its
// release: Do returns what the function returned, and Permit.Release returns an
// *UnconfirmedError. Until the release arrives at etcd, or the lease ends, the permit counts
// as held.
//
// # Not guaranteed
//
// Outside effects of two holders can overlap: a process can be paused between the check of
// its permit and the effect. An effect that must not overlap needs a check of the token at its
// target, or a Txn with the guard. Outside effects are not done exactly once.
//
// # Terms
//
// A session is a lease in etcd that this process keeps alive, with everything that is held on
// it. A request is one call's place in a queue; it waits, or it holds a permit. With
// SemaphoreOptions.Keep and Handover one request serves several calls, one after the other. The token of a
// request is its create revision in etcd; it shows the request's age, identifies it, and
// serves as its fencing token. A notice is a message from another process that it has ended a
// request of this process.
package concurrency
