package schedlock

import "time"

// WithClock returns options with a clock that is off by that much, of which
// the others are sent often.
func WithClock(o Options, ahead time.Duration) *Options {
	o.Now = func() time.Time { return time.Now().Add(ahead) }
	o.beat = 50 * time.Millisecond
	return &o
}
