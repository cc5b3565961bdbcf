package schedlock

import "time"

// Settled returns options with which plans are written at once.
func Settled(o *Options) *Options {
	var out Options
	if o != nil {
		out = *o
	}
	out.settle = time.Nanosecond
	return &out
}

// Hasty returns options with which a call does not wait for the end of settings.
func Hasty(o *Options) *Options {
	var out Options
	if o != nil {
		out = *o
	}
	out.patience = time.Nanosecond
	return &out
}

// WithClock returns options with a clock that is off by that much, of which
// the others are sent often.
func WithClock(o Options, ahead time.Duration) *Options {
	o.Now = func() time.Time { return time.Now().Add(ahead) }
	o.beat, o.settle = 50*time.Millisecond, time.Millisecond
	return &o
}

// Beating returns options with which plans are written at once, and the time of the process is published often.
func Beating(o *Options) *Options {
	out := Settled(o)
	out.beat = 50 * time.Millisecond
	return out
}

// Few returns options with which a Locker remembers few jobs.
func Few(few int) *Options { return &Options{few: few} }

// Jobs returns of how many jobs a Locker knows something.
func Jobs(l *Locker) int { return len(l.jobs.all()) }

// KnowsClocks reports whether a Locker has read the clocks of its fleet: until then it removes no record.
func KnowsClocks(l *Locker) bool {
	_, known := l.clocks.slowest(l.sess.Lease())
	return known
}

// Slowest returns what a Locker takes for the slowest clock of its fleet.
func Slowest(l *Locker) time.Time {
	at, _ := l.clocks.slowest(l.sess.Lease())
	return at
}
