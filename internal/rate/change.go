package rate

import "math"

// Former is what the requests for shares weigh that were created before the rate was changed: a process that has not learned
// of the change takes as much for each of its shares as so many new ones give.
type Former struct {
	Before int64 // the revision of the change
	Weight int64 // at least 1
}

// Units returns how many shares a request takes up that was created at a revision. If it is more than 1, a process that has
// learned of the change returns the share of that request, and asks anew.
func (f Former) Units(created int64) int64 {
	if created < f.Before {
		return f.Weight
	}
	return 1
}

// Change returns the division of a rate that replaces d, and what requests from before weigh in it, if they weigh so much
// in d. If neither the rate nor the burst is lowered, then all shares of d together weigh no more than the new ones: a
// process that has not learned of the change yet stays within the new rate as well.
func (d Division) Change(to Rate, weighs int64) (next Division, weight int64) {
	next = Divide(to)
	if d.Shares == 0 || to.PerSecond < d.PerSecond || to.Burst < d.Burst {
		return next, 1
	}
	part := max(d.PerSecond/to.PerSecond, float64(d.Burst)/float64(to.Burst)) // of all new shares, that all of d's make up
	weigh := func(shares int64) int64 {
		return max(1, int64(math.Ceil(part*float64(shares)/float64(d.Shares)-1e-9)))
	}
	if next.Shares = max(next.Shares, d.Shares); d.Shares*weigh(next.Shares) > next.Shares {
		next.Shares -= next.Shares % d.Shares
	}
	return next, min(next.Shares, weighs*weigh(next.Shares))
}

// Fit returns how many requests, from the first one on, have shares of d, by the revisions at which they were created.
func (d Division) Fit(created []int64, f Former) (n int) {
	for left := d.Shares; n < len(created); n++ {
		if left -= f.Units(created[n]); left < 0 {
			break
		}
	}
	return n
}
