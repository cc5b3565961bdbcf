package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/demos/internal/backend"
	"github.com/etcdkit/etcdkit/demos/internal/waits"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// step is one step of the parts below, and what came of it.
type step struct {
	What  string `json:"what"`
	Got   string `json:"got"`
	Want  string `json:"want"`
	After string `json:"after,omitempty"` // how long it took, where that matters
}

// soon bounds the wait for what should happen within seconds.
const soon = 30 * time.Second

// until waits until ok returns true, and reports whether it has.
func until(ctx context.Context, ok func() (bool, error)) (bool, error) {
	for end := time.Now().Add(soon); ; {
		done, err := ok()
		if done || err != nil || time.Now().After(end) {
			return done, err
		}
		if err := program.Sleep(ctx, 10*time.Millisecond); err != nil {
			return false, err
		}
	}
}

// stuckHandlers fills the limit of a user with requests whose handlers never return. A further
// request waits until the permits of those have ended after MaxHold.
func (d *demo) stuckHandlers(ctx context.Context, o *outcome) error {
	const user = "stuck"
	var wg sync.WaitGroup
	defer wg.Wait()
	sending, hangUp := context.WithCancel(ctx)
	defer hangUp()
	for range perUser {
		wg.Go(func() { d.client.Post(sending, "/stuck/"+user) })
	}
	st := concurrency.Status{}
	_, err := until(ctx, func() (_ bool, err error) {
		st, err = d.limiter.Key(user).Status(ctx)
		return st.Used == perUser, err
	})
	if err != nil {
		return err
	}
	o.step(fmt.Sprintf("%d requests whose handlers never return", perUser), fmt.Sprintf("%d of %d in use", st.Used, st.Limit), fmt.Sprintf("%d of %d in use", perUser, perUser), 0)
	fifth := d.client.Post(ctx, "/"+byUser+"/"+user)
	o.step(fmt.Sprintf("one more request of this user waits until MaxHold (%v) has ended their permits", maxHold), answered(fifth), "200", fifth.Waited)
	_, err = until(ctx, func() (bool, error) { return d.count(backend.Event{Kind: evTooLong, Text: user}) == perUser, nil })
	if err != nil {
		return err
	}
	o.step("the contexts of the stuck handlers have ended with ErrTooLong", fmt.Sprint(d.count(backend.Event{Kind: evTooLong, Text: user})), fmt.Sprint(perUser), 0)
	_, err = until(ctx, func() (_ bool, err error) {
		st, err = d.limiter.Key(user).Status(ctx)
		return st.Used == 0, err
	})
	o.step("permits of this user, while the handlers are still stuck", fmt.Sprint(st.Used), "0", 0)
	return err
}

// flows begins flows at one gateway and ends them at another: one by its ID, and one whose gateway
// was killed.
func (d *demo) flows(ctx context.Context, o *outcome) error {
	const user = "ann"
	at := func(i int, path string) waits.Answer {
		return waits.NewClient(d.gateways[i].URL).Post(ctx, "/flows/"+user+"/"+path)
	}
	holders := func() string {
		st, err := d.limiter.Key(user).Status(ctx)
		if err != nil {
			return err.Error()
		}
		s := fmt.Sprint(st.Used)
		for _, r := range st.Holders {
			s += fmt.Sprintf(" (%s at %s)", r.ID, r.Owner)
		}
		return s
	}
	o.step("flow-1 begins at gateway-1", answered(at(0, "flow-1")), "200", 0)
	o.step("permits of this user", holders(), "1 (flow-1 at gateway-1)", 0)
	o.step("it ends at gateway-2, by ReleaseID", answered(at(1, "flow-1/end")), "200", 0)
	ended, err := until(ctx, func() (bool, error) { return d.count(backend.Event{Kind: evReleased, Text: "flow-1"}) == 1, nil })
	if err != nil {
		return err
	}
	o.step("gateway-1 notices: its context has ended with ErrReleased", fmt.Sprint(ended), "true", 0)
	o.step("permits of this user", holders(), "0", 0)
	o.step("it ends once more", answered(at(2, "flow-1/end")), "404", 0)

	o.step("flow-2 begins at gateway-1", answered(at(0, "flow-2")), "200", 0)
	o.step("gateway-3 begins it too", answered(at(2, "flow-2")), "409", 0)
	if err := d.proxy.Set(0, ""); err != nil {
		return err
	}
	if err := d.Kill(d.gateways[0]); err != nil {
		return err
	}
	o.step("gateway-1 is killed: until its lease expires, it counts", holders(), "1 (flow-2 at gateway-1)", 0)
	taken := at(2, "flow-2?takeover")
	o.step("gateway-3 takes flow-2 over, by TakeOver", answered(taken), "200", taken.Took)
	o.step("permits of this user", holders(), "1 (flow-2 at gateway-3)", 0)
	o.step("it ends at gateway-2", answered(at(1, "flow-2/end")), "200", 0)
	o.step("permits of this user", holders(), "0", 0)
	return nil
}

// answered returns the status of an answer.
func answered(a waits.Answer) string {
	if a.Status == 0 {
		return "no answer"
	}
	return fmt.Sprint(a.Status)
}
