// Package keyspace turns names into etcd keys and back. It is the only place in the project that
// builds a key or a key range.
//
// Guaranteed: every encoding is injective, and the range of one name never contains a key of
// another. Each component is escaped to a safe alphabet and ended by '/', so neither a common
// prefix ("a", "ab") nor a hostile byte (0xff, which etcd cannot increment when it computes the
// end of a prefix) can widen a range.
//
// The layout below <prefix>/v1/<namespace>/:
//
//	session/<lease>/alive            presence of one session, and its fence
//	session/<lease>/notice/<token>/<request> why that request of the session ended
//	session/<lease>/stop/<token>/<request>   that request is asked to stop
//	semaphore/<name>/limit                 the limit of a semaphore
//	semaphore/<name>/queue/light/…             its requests of weight 1
//	semaphore/<name>/queue/heavy/<weight>/…    its heavier requests
//	mutex/<name>/queue/light/…           the requests for a mutex
//	election/<name>/queue/light/…        the candidates of an election
//	job/<name>/…                     a scheduled job: see Job
//	clock/<lease>                    a process that runs jobs, and its time
//	jobs-of/<lease>/<n>                 the names of the jobs that it has
//	idempotency/<store>/record/<scope>/<hash>…   the record and the claim of a request
//	idempotency/<store>/part/<hash>/<token>/…      parts of a result that is too big for it
//	request-id/semaphore/<name>/<id>               which request a caller's ID stands for; also
//	                                 request-id/mutex/… and request-id/election/…
//
// Weight and kind of a request are in the name of its key, never in its value: a name cannot be
// overwritten. So whatever decides over admission is immutable, and the same for processes that
// list the keys and for those that only count them.
package keyspace
