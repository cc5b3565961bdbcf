// Package verb is what each verb of the command etcdkit builds on: one call of the command, with its
// streams, its connection to etcd, the form of its output, questions to an operator and progress.
//
// A verb is a function that takes a Call and returns a cobra.Command. It reads etcd through the
// sessions and clients that the Call opens, prints its result through Call.Print, and returns an error
// of package exit. It knows no other verb.
package verb
