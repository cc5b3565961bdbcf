package engine

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// What etcd may refuse a session that repeats it.
const (
	deniedRenewal = "the renewal of its lease"
	deniedLease   = "a new lease"
	deniedRange   = "to read its own keys"
	deniedNotice  = "to delete a notice that it has read"
)

// denials has it logged what etcd refuses the session: at once, each minute for as long as it lasts, and
// when it is over. Without that, an operator would see a process that does nothing and logs nothing.
type denials struct {
	log     *zap.Logger
	explain func(error) error
	asks    func(error) bool // whether etcd asks for a login that the client can make

	mu   sync.Mutex
	what map[string]*denied
}

func newDenials(log *zap.Logger, explain func(error) error, asks func(error) bool) *denials {
	return &denials{log: log, explain: explain, asks: asks, what: map[string]*denied{}}
}

// denied is a refusal that lasts. The zero value is none.
type denied struct{ since, logged time.Time }

const (
	// saidAgain is how often a refusal that lasts is logged.
	saidAgain = time.Minute
	// loginSoon is how long a login may take, since authentication was enabled, that etcd asks for.
	loginSoon = 5 * time.Second
)

// begun returns since when it lasts: now, if it is new.
func (d *denied) begun(now time.Time) time.Time {
	if d.since.IsZero() {
		d.since = now
	}
	return d.since
}

// again records one more refusal, and reports whether it is to be logged.
func (d *denied) again(now time.Time) bool {
	d.begun(now)
	if !d.logged.IsZero() && now.Sub(d.logged) < saidAgain {
		return false
	}
	d.logged = now
	return true
}

// refused records how a call has ended that etcd may refuse: nil if it has not.
func (d *denials) refused(what string, err error) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.what[what]
	switch {
	case err == nil && known != nil:
		delete(d.what, what)
		if known.logged.IsZero() {
			return
		}
		d.log.Info("etcd allows again what it had refused the session", zap.String("refused", what), zap.Duration("lasted", now.Sub(known.since)))
	case err != nil && known == nil:
		known = &denied{}
		d.what[what] = known
		fallthrough
	case err != nil:
		if d.asks(err) && now.Sub(known.begun(now)) < loginSoon {
			return // it logs in
		}
		if known.again(now) {
			d.log.Warn("etcd refuses what the session needs; that is repeated", zap.String("refused", what), zap.Time("since", known.since), zap.Error(d.explain(err)))
		}
	}
}

// forget is for what nothing repeats any more, since its lease is lost.
func (d *denials) forget(what ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range what {
		delete(d.what, w)
	}
}
