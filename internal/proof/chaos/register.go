package chaos

import "sync"

// Register is a resource outside of etcd that checks tokens: it refuses a write with
// a token below the greatest that it has seen.
type Register interface {
	// Write offers a write. It returns whether it was accepted, and the number of
	// the offer in the register's own order.
	Write(token int64) (accepted bool, number int64)
}

// NewRegister returns a register in memory.
func NewRegister() Register { return &register{} }

type register struct {
	mu    sync.Mutex
	token int64
	n     int64
}

func (r *register) Write(token int64) (accepted bool, number int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	if token < r.token {
		return false, r.n
	}
	r.token = token
	return true, r.n
}
