package rate

// Seen is what a read of the queue of shares shows to one process.
type Seen struct {
	Free   int64 // shares for which there is no request; below 0 if requests wait
	Fair   int64 // the part of each process that has a request, this one included, rounded down
	Others int64 // the other processes that have a request
	Wanted int64 // shares that those of them wait for which have less than their part
}

// Survey returns what the queue shows to the process with that lease. leases are those of the
// requests, in the order of the queue: the first ones hold the shares.
func Survey(leases []int64, own, shares int64) Seen {
	type process struct{ held, waits int64 }
	all := map[int64]*process{own: {}}
	for i, lease := range leases {
		p := all[lease]
		if p == nil {
			p = &process{}
			all[lease] = p
		}
		if int64(i) < shares {
			p.held++
		} else {
			p.waits++
		}
	}
	s := Seen{Free: shares - int64(len(leases)), Fair: shares / int64(len(all)), Others: int64(len(all)) - 1}
	for lease, p := range all {
		if lease != own {
			s.Wanted += min(p.waits, max(0, max(s.Fair, 1)-p.held))
		}
	}
	return s
}

// Own is what one process holds and does.
type Own struct {
	Need  int64 // shares that it would use: see Division.Need
	Held  int64
	Asked int64 // its requests that wait
	// TurnOver says that it has held shares for Division.Turn.
	TurnOver bool
	// Idle says that it has not been called for a while.
	Idle bool
}

// Step is what a process does next: how many shares it asks for, how many of its requests it
// withdraws, and how many shares it returns.
type Step struct{ Ask, Withdraw, Return int64 }

// Next decides the next step of a process. It asks for what it needs: as far as shares are free, or
// up to its fair part. It returns shares to processes that have less than their part and wait. If
// none is free for the other processes, it returns half of what it does not need, so that some are;
// when it is idle, it returns all. If there are more processes than shares, a process holds one share
// for a turn.
func Next(s Seen, o Own) (next Step) {
	if o.Idle {
		return Step{Withdraw: o.Asked, Return: o.Held}
	}
	most := max(s.Fair, 1)
	if s.Free > 0 {
		most = max(most, o.Held+o.Asked+s.Free)
	}
	goal := min(o.Need, most)
	if s.Wanted > 0 {
		rest := min(o.Need, s.Fair)
		if s.Fair == 0 && o.Need > 0 && !o.TurnOver {
			rest = 1
		}
		next.Return = max(0, min(o.Held-rest, s.Wanted))
	}
	if unused := o.Held - o.Need; s.Others > 0 && s.Free <= 0 {
		next.Return = max(next.Return, (unused+1)/2)
	}
	switch have := o.Held - next.Return + o.Asked; {
	case have < goal:
		next.Ask = goal - have
	case have > goal:
		next.Withdraw = min(o.Asked, have-goal)
	}
	return next
}
