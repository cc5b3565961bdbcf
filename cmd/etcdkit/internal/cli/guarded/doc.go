// Package guarded runs a command under a guard for the verbs run, jobs run and cron: it is dead before etcd
// can give the permit, or the job, to another process.
package guarded
