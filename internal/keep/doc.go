// Package keep has permits stay in their process when they are released: for its next call while no request waits
// in etcd (Keep), or for a call that waits in the process itself (Handover). A Key is one request in etcd that serves
// callers one after the other; a Holder is the part of a permit by which it has a key. What a permit is to its caller,
// and how etcd is asked for one, is the concern of package concurrency.
package keep
