package work

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/bench/measure"
	"github.com/etcdkit/etcdkit/bench/servers"
	"github.com/etcdkit/etcdkit/concurrency"
)

// Scene is a crowd at a semaphore, and what happens to it: how long does a slot stay free meanwhile?
type Scene struct {
	Crowd
	Permanent int           // permits that one more process holds all the time
	Bursts    bool          // every now and then all holds are long
	Impatient time.Duration // four of five callers give up within this time
	RTT       time.Duration // of each process to etcd
	// Least is how long it is measured at least: longer than the bound that it is compared with, because
	// a slot that is free at the end counts only up to there. It is measured for 3 × Env.For otherwise.
	Least time.Duration
	// during happens while it is measured; without it the callers only work on.
	during func(ctx context.Context, s *stage) error
}

// stage is a scene that runs.
type stage struct {
	*Env
	Scene
	name    string
	slots   slots
	holder  *concurrency.Session   // of the permanent permits
	sem     *concurrency.Semaphore // of that session
	granted atomic.Int64
}

// Scene measures one.
func (e *Env) Scene(id string, sc Scene) measure.Cell {
	return measure.Cell{IDs: []string{id}, Run: func(ctx context.Context) ([]measure.Sample, error) {
		s := &stage{Env: e, Scene: sc, name: name()}
		sample, err := s.run(ctx)
		return []measure.Sample{sample}, err
	}}
}

// adopt has the callers take a limit that an operator has changed.
var adopt = &concurrency.SemaphoreOptions{AdoptLimit: true}

func (s *stage) run(ctx context.Context) (sample measure.Sample, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := s.hold(ctx); err != nil {
		return nil, err
	}
	defer end(s.holder.Close)
	on := s.Env
	if s.RTT > 0 {
		away, err := farther(s.Env, s.RTT)
		if err != nil {
			return nil, err
		}
		defer away.end()
		on = away.Env
	}
	lock := Ours("ours", adopt)
	locks, closing, err := on.open(ctx, lock, s.name, s.Processes, s.Limit)
	defer closing()
	if err != nil {
		return nil, err
	}
	s.slots.release(time.Now(), s.Limit-s.Permanent)
	var wg sync.WaitGroup
	failed := make(chan error, 1)
	for _, acquire := range locks {
		for range max(s.Callers, 1) {
			wg.Go(func() {
				if err := s.caller(ctx, acquire); err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			})
		}
	}
	defer wg.Wait()
	defer cancel()
	if err := s.inQueue(ctx, lock.queue(s.name), int64(max(s.Processes*max(s.Callers, 1)-s.Limit, 0)*8/10)); err != nil {
		return nil, err
	}
	put, err := s.puts(ctx, &wg)
	if err != nil {
		return nil, err
	}
	s.slots.measure(true)
	if s.during == nil {
		err = after(s.lasts())(ctx)
	} else {
		err = s.during(ctx, s)
	}
	s.slots.measure(false)
	sample = s.slots.sample(time.Now())
	sample[measure.WorstPut] = ms(put())
	select {
	case first := <-failed:
		err = errors.Join(first, err)
	default:
	}
	return sample, err
}

func (s *stage) lasts() time.Duration { return max(3*s.For, s.Least) }

// hold takes the permanent permits.
func (s *stage) hold(ctx context.Context) (err error) {
	if s.holder, err = s.session(ctx, s.Processes, s.name); err != nil {
		return err
	}
	if s.sem, err = concurrency.NewSemaphore(s.holder, "work", s.Limit, adopt); err != nil {
		return err
	}
	for range s.Permanent {
		p, err := s.sem.Acquire(ctx)
		if err != nil {
			return err
		}
		context.AfterFunc(ctx, func() { end(p.Release) })
	}
	return nil
}

// caller acquires, holds and releases until ctx ends.
func (s *stage) caller(ctx context.Context, acquire acquire) error {
	for ctx.Err() == nil {
		patience := ctx
		cancel := func() {}
		if s.Impatient > 0 && rand.IntN(5) > 0 {
			patience, cancel = context.WithTimeout(ctx, rand.N(s.Impatient))
		}
		s.slots.ask(time.Now())
		release, err := acquire(patience)
		cancel()
		if err != nil {
			s.slots.leave()
			if ctx.Err() == nil && patience.Err() == nil {
				return err
			}
			continue
		}
		s.slots.grant(time.Now())
		hold := s.Hold
		if n := s.granted.Add(1); s.Bursts && n/int64(s.Limit)%20 == 0 {
			hold = 300 * time.Millisecond
		}
		_ = after(hold)(ctx)
		s.slots.release(time.Now(), 1)
		if err := release(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, concurrency.ErrLost) {
			return err
		}
	}
	return nil
}

// puts writes a key each 10 ms, and returns how to get the longest time of a Put, also of one that
// has not returned.
func (s *stage) puts(ctx context.Context, wg *sync.WaitGroup) (worst func() time.Duration, err error) {
	client, err := s.Etcd.Process(s.Processes + 1)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var longest time.Duration
	var begun time.Time // of the Put that is on its way
	count := func(next time.Time) {
		mu.Lock()
		defer mu.Unlock()
		if !begun.IsZero() {
			longest = max(longest, time.Since(begun))
		}
		begun = next
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			count(time.Now())
			if _, err := client.Put(ctx, "/"+s.name+"/put", "x"); err != nil {
				return
			}
			count(time.Time{})
			_ = after(10 * time.Millisecond)(ctx)
		}
	})
	return func() time.Duration { count(time.Time{}); return longest }, nil
}

// away is an Env whose processes are far from etcd.
type away struct {
	*Env
	proxies []*servers.Proxy
}

func farther(e *Env, rtt time.Duration) (*away, error) {
	a := &away{}
	var at []string
	for _, addr := range e.Etcd.At() {
		p, err := servers.StartProxy(addr, rtt)
		if err != nil {
			a.end()
			return nil, err
		}
		a.proxies = append(a.proxies, p)
		at = append(at, p.Addr())
	}
	a.Env = &Env{Etcd: servers.Connect(at), Redis: e.Redis, For: e.For}
	return a, nil
}

func (a *away) end() {
	if a.Env != nil {
		a.Etcd.Close()
	}
	for _, p := range a.proxies {
		p.Close()
	}
}

// more raises the limit by n, which frees n slots at once.
func more(n int) func(context.Context, *stage) error {
	return func(ctx context.Context, s *stage) error {
		want := s.granted.Load() + int64(n)
		s.slots.release(time.Now(), n)
		if err := s.sem.SetLimit(ctx, s.Limit+n); err != nil {
			return err
		}
		return s.until(ctx, want)
	}
}

// until waits until so many permits were granted, or for a time after which the slots that are still
// free count.
func (s *stage) until(ctx context.Context, granted int64) error {
	for late := time.Now().Add(max(settle, s.Least)); s.granted.Load() < granted && time.Now().Before(late); {
		if err := after(time.Millisecond)(ctx); err != nil {
			return err
		}
	}
	return nil
}

// kill ends the session of the permanent permits, as if its lease had expired.
func kill(ctx context.Context, s *stage) error {
	s.slots.release(time.Now(), s.Permanent)
	if _, err := s.Etcd.Client().Revoke(ctx, s.holder.Lease()); err != nil {
		return err
	}
	return after(s.lasts())(ctx)
}

// pause is how long a member stands still.
const pause = 2 * time.Second

// stopMember stops a follower for a while, and compacts meanwhile.
func stopMember(ctx context.Context, s *stage) error {
	leader, err := s.Etcd.WaitLeader(ctx)
	if err != nil {
		return err
	}
	follower := 2
	if leader == follower {
		follower = 1
	}
	member := s.Etcd.Member(follower)
	if err := member.Pause(); err != nil {
		return measure.Unavailable(err.Error())
	}
	defer func() { _ = member.Resume() }()
	if err := after(pause / 2)(ctx); err != nil {
		return err
	}
	// A busy member may not say within the time for that question which one leads.
	if leader, err = s.Etcd.WaitLeader(ctx); err != nil {
		return err
	}
	admin := s.Etcd.MemberClient(leader)
	r, err := admin.Get(ctx, "x")
	if err != nil {
		return err
	}
	if _, err := admin.Compact(ctx, r.Header.GetRevision(), clientv3.WithCompactPhysical()); err != nil {
		return err
	}
	if err := after(pause / 2)(ctx); err != nil {
		return err
	}
	if err := member.Resume(); err != nil {
		return err
	}
	return after(s.lasts())(ctx)
}
