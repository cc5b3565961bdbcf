package rate

import (
	"errors"
	"fmt"
	"math"
	"time"
)

const (
	// pace is the part of the rate at which tokens accrue: clocks may be 1,000 ppm fast.
	pace = 0.999
	// mostShares is the greatest number of shares. More would move more finely, and cost more keys.
	mostShares = 64
	// slack is how much longer than a token needs a process keeps its only share for it.
	slack = 100 * time.Millisecond
	// shortestTurn is how long a process keeps its only share at least while others wait.
	shortestTurn = time.Second
)

// Rate is how many tokens a fleet may take.
type Rate struct {
	PerSecond float64
	Burst     int64
}

// The bounds of a Rate.
const (
	LeastPerSecond = 1e-5
	MostPerSecond  = 1e6
)

// Check returns an error for a rate that is out of range.
func (r Rate) Check() error {
	switch {
	case math.IsNaN(r.PerSecond):
		return errors.New("Rate.PerSecond is not a number")
	case r.PerSecond < LeastPerSecond || r.PerSecond > MostPerSecond:
		return fmt.Errorf("Rate.PerSecond of %v is not between %v and %v", r.PerSecond, float64(LeastPerSecond), float64(MostPerSecond))
	case r.Burst < 1 || r.Burst > math.MaxInt32:
		return fmt.Errorf("Rate.Burst of %d is not between 1 and %d", r.Burst, math.MaxInt32)
	}
	return nil
}

// Division is a rate in equal shares.
type Division struct {
	Rate
	Shares int64
}

// Divide returns the division of a new rate. Each share has a capacity of one token at least, and,
// if the rate allows for that, gives a token each second at least.
func Divide(r Rate) Division {
	return Division{r, max(1, min(mostShares, r.Burst, int64(r.PerSecond)))}
}

// share returns the tokens per second and the capacity of one share.
func (d Division) share() (perSecond, capacity float64) {
	return d.PerSecond / float64(d.Shares), float64(d.Burst) / float64(d.Shares)
}

// Need returns how many shares a process needs that holds some. They give a token for each call.
// Callers that wait for one token after the other do not show how many they would take: while calls
// wait it is an eighth of all shares at least, then four times what the process holds. What turns out
// to be too much is returned: see Next.
func (d Division) Need(perSecond float64, waiting int, held int64) int64 {
	each, _ := d.share()
	need := math.Ceil((perSecond + float64(waiting)) / each)
	if waiting > 0 {
		need = max(need, math.Ceil(float64(d.Shares)/8), 4*float64(held))
	}
	return int64(min(need, float64(d.Shares)))
}

// Turn returns how long a process keeps its only share although others wait: for one token at least.
func (d Division) Turn() time.Duration {
	each, _ := d.share()
	return max(shortestTurn, seconds(1/(each*pace))+slack)
}

// Behind returns when there is a token for a call behind others that wait, if the first of them gets
// its token after next.
func (d Division) Behind(next time.Duration, waiting, held int) time.Duration {
	each, _ := d.share()
	return next + seconds(float64(waiting)/(float64(held)*each*pace))
}

// seconds is bounded, so that the sum of two is a duration as well.
func seconds(s float64) time.Duration {
	return time.Duration(min(s*float64(time.Second), math.MaxInt64/2))
}
