// Package output is how the command etcdkit writes: results as aligned tables or as JSON, texts that
// steer no terminal, progress, and messages that wait for no reader.
//
// Texts from etcd (names, notes, errors) are not trusted: tables, JSON and Lines have what is not visible escaped.
package output
