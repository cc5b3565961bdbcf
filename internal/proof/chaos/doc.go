// Package chaos runs what is under test on a small cluster of three etcd members and
// six to eight processes, with random operations, while nemeses do harm; then it
// mends everything, looks what is left, and has the checkers of package check judge
// the history.
//
// Everything that is random is drawn from a Seed: which operations and nemeses there
// are, in which order and for how long. How they meet in time is not decided, so a
// seed that went red need not do so again; its history can be judged again.
//
// # Adding a workload
//
// A Workload names operations on something that is under test: see semaphores.go,
// kept.go, keyed.go, mutexes.go, elections.go, jobs.go and requests.go. An Operation records itself in the
// history, by its process's client, as package history describes. A new kind of event needs a checker: see package check.
//
// # Adding a nemesis
//
// A Nemesis does harm until its context ends, mends it, and returns how often the harm
// was seen to have an effect: one without effect is a defect. Harm from which the
// guarantees are excepted is declared in the history (declare.go), so that checkers
// excuse exactly what it has struck, and count it.
package chaos
