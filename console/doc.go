// Package console is a page in the browser for the operators of a namespace: what its queues, elections,
// jobs and requests do now, why each request waits, and, if the program allows it, the actions by which an
// operator ends that.
//
// # Guaranteed
//
// Without Options.Authorize the console changes nothing. With it, each read and each action is asked for.
// An action is a POST from a page of the console itself: requests that another site has caused are refused
// by the browser's Sec-Fetch-Site and Origin headers, and requests for a host that is not in Options.Hosts
// are refused before anything else, which excludes DNS rebinding. Texts from etcd are escaped, and the
// pages have no inline script or style, and load nothing but the console's own files (Content-Security-Policy).
//
// An action is made on what its page has shown. It reads its target again, and does nothing if that has changed:
// the limit, the pause of a job, its cooldown or the token of its run, whether a request waits or holds, the attempt of
// a record. etcd's transaction refuses a record that changes after that; a limit, a pause or a cooldown that changes in
// the same moment is replaced, and a waiter that is admitted then is ended. A form is made once, however often it is
// sent to one process within a minute.
//
// All viewers share one watch of the namespace, and each page is made of it at most once a second. What the
// watch does not have (the remaining time of leases on the page of a queue and on that of its actions, the records
// of a store, the members of etcd) is read at most once a second, and for at most a tenth of the time, however many
// look at it; after a failure, or findings of the doctor, again after a second. The page of an action on a job, on a
// record or on a default limit reads the keys of that alone, for each request. Each action reads its target, and has each page read
// again. A minute after the last viewer nothing is followed, read or kept, but for the schedlock.Locker of the first
// action on a job, which lives as long as the session.
//
// While etcd does not answer, a page shows what was read last, and since when that is not confirmed.
//
// # Not guaranteed
//
// The console has no users and no passwords: Options.Authorize, or what the program puts around the
// handler, decides which requests are an operator's. A page shows a moment that has passed: it says as of
// when.
package console
