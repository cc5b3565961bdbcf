// Package members sends the calls of one session past a member of etcd that hangs.
//
// etcd's client sends calls round robin, and the kernel of a stopped process still acknowledges what it
// receives: each call to that member waits for its bound, and whatever waits for that call waits as long.
//
// Guaranteed: as long as calls are answered in time, all goes by the caller's client, and no request is
// added. No call is sent twice at the same time: a call to a member that hangs ends as unanswered, and its
// caller settles it, as after a lost connection; only a read is repeated here. Slowness alone leaves out no
// member, and the last one that answers is never left out. Not guaranteed: that a member is noticed whose
// disk alone hangs, since it still answers.
//
// How: a call that is late makes all members be probed at once, each on a connection of its own. A member
// whose answer comes clearly later than another's hangs. Its calls and streams end, new ones go to the
// others by those connections, and its probe stays under way: the answer brings it back. The decision is
// pure (judge.go); the loop around it is in trouble.go.
package members
