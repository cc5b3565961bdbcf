package limit

import "sync"

// Adopted is what a session has logged of a number in etcd that is in force in place of its program's: once for each
// number, whichever value of that name finds it. It is safe for concurrent use.
type Adopted struct {
	mu  sync.Mutex
	was any // the number in etcd that was logged last, or nil
}

// IsNew records a number in etcd, and reports whether it is not the one that was logged last.
func (a *Adopted) IsNew(stored any) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.was == stored {
		return false
	}
	a.was = stored
	return true
}
