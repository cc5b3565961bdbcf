package rate

import "time"

// Bucket has the tokens of the shares that one process holds. The caller passes the time, which is
// read before the call and never goes back. The zero Bucket has no shares. It is not safe for
// concurrent use.
type Bucket struct {
	division Division
	held     int64
	tokens   float64
	at       time.Time // until when tokens have accrued
}

// Set makes the bucket that of so many shares of a division. A share that is gained brings no
// token. Tokens above the capacity of the shares that are left are void.
func (b *Bucket) Set(now time.Time, held int64, d Division) {
	b.accrue(now)
	b.held, b.division = held, d
	b.tokens = min(b.tokens, b.capacity())
}

// Held returns the number of shares.
func (b *Bucket) Held() int64 { return b.held }

// Take takes one token if there is one. trusted says whether the process may trust, at now or later,
// that it holds the shares; if not, all tokens are void.
func (b *Bucket) Take(now time.Time, trusted bool) bool {
	b.accrue(now)
	if !trusted {
		b.Void(now)
	}
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// Next returns how long it takes until there is a token. ok is false if there are no shares.
func (b *Bucket) Next(now time.Time) (_ time.Duration, ok bool) {
	b.accrue(now)
	if b.held == 0 {
		return 0, false
	}
	// A nanosecond more: a timer that fires at once again would do so until a token is there.
	return seconds(max(0, 1-b.tokens)/b.perSecond()) + 1, true
}

// Load adds what was stored of the tokens: if the bucket has more by now, that stays.
func (b *Bucket) Load(now time.Time, stored float64) {
	b.accrue(now)
	b.tokens = min(b.capacity(), max(b.tokens, stored))
}

// Left returns the tokens, whole ones and the part of the next one.
func (b *Bucket) Left(now time.Time) float64 {
	b.accrue(now)
	return b.tokens
}

// Void voids all tokens: some shares were lost at a moment that is not known, and tokens have accrued
// for them since then.
func (b *Bucket) Void(now time.Time) {
	b.accrue(now)
	b.tokens = 0
}

func (b *Bucket) accrue(now time.Time) {
	if !now.After(b.at) {
		return
	}
	if b.held > 0 {
		b.tokens = min(b.capacity(), b.tokens+now.Sub(b.at).Seconds()*b.perSecond())
	}
	b.at = now
}

// perSecond returns how many tokens accrue in a second.
func (b *Bucket) perSecond() float64 {
	each, _ := b.division.share()
	return float64(b.held) * each * pace
}

func (b *Bucket) capacity() float64 {
	if b.held == 0 {
		return 0
	}
	_, each := b.division.share()
	return float64(b.held) * each
}
