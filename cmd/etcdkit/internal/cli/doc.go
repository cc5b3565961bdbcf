// Package cli is the command etcdkit: its verbs, the flags by which etcd is reached, exit codes, and
// output as tables or JSON.
//
// Results are written to standard output, everything else to standard error. A verb is one file, and
// reads or changes etcd through the public packages alone, so that the command can do nothing that a
// program could not do.
//
// Texts from etcd (names, notes, errors) are not trusted: tables show control characters escaped, so
// that they cannot steer a terminal.
package cli
