// Package cli is the root of the command etcdkit: it composes the verbs, and has what is about all of them: the
// flags, help and completion, the manual pages and docs/cli.md.
//
// The verbs are in packages by what they are about, which do not know each other:
//
//	queues    ls, show, top, limit, elections    look at the queues of a namespace, and set their limits
//	permits   run, hold, release, evict          acquire a permit, or end a request
//	cron      cron, jobs run                     commands that run once for each of their times
//	jobs      jobs                               scheduled jobs and their runs
//	requests  requests                           idempotent requests and their outcomes
//	doctor    doctor                             examine etcd and a namespace
//	serve     console, export                    a page for operators, and metrics
//	trial     bench, conformance                 measure and test on the user's own cluster
//
// Below them is what they share: verb, one call of the command with its connection; output, tables and JSON;
// exit, codes and errors; queue, a queue as an argument names it; guarded, a command that runs under a guard.
//
// Results are written to standard output, everything else to standard error. The verbs read and change etcd
// through the public packages alone, so that the command can do nothing that a program could not do.
package cli
