// Package stored has the tests of what etcdkit stores in etcd: that docs/storage.md describes it, that this release reads
// the records of each release before it, and what it does with those of a later one (docs/design/0054-formats.md).
package stored
