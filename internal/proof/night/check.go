package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The longest that a check waits, in minutes of the rules.
const (
	healthy = 40 // before the faults: EtcdkitElectionGone looks at the half hour before
	toFire  = 60
	toEnd   = 60
)

// check causes every fault of the list, and verifies what the pages say of it.
func check(ctx context.Context, c config, n *night) error {
	all := plan(c.seed, c.faults(n), n.names, len(faults), 0)
	var together []planned
	groups := [][]planned{nil}
	for _, p := range all {
		if p.apart {
			groups = append(groups, []planned{p})
		} else {
			together = append(together, p)
		}
	}
	groups[0] = together
	c.say("%d faults; a healthy fleet first, for %v", len(all), healthy*c.minute)
	sleep(ctx, healthy*c.minute)
	if firing, err := n.seen.firing(ctx); err != nil || len(firing) > 0 {
		return errors.Join(err, fmt.Errorf("alerts of the healthy fleet: %q", slices.Sorted(maps.Keys(firing))))
	}
	for _, group := range groups {
		if err := checkGroup(ctx, c, n, group); err != nil {
			return err
		}
	}
	return nil
}

// checkGroup causes some faults at once, and ends them.
func checkGroup(ctx context.Context, c config, n *night, group []planned) error {
	if len(group) == 0 {
		return nil
	}
	begun := time.Now()
	for _, p := range group {
		c.say("%s: %s", p.name, p.on)
		if err := p.cause(ctx, n, p.on); err != nil {
			return fmt.Errorf("cause %q: %w", p.name, err)
		}
	}
	if err := allFire(ctx, c, n, group, begun); err != nil {
		return err
	}
	var hidden []error // causes that are not shown
	for _, p := range group {
		if err := n.leads(ctx, p); err != nil {
			hidden = append(hidden, fmt.Errorf("%s (%s): %w", p.name, p.on, err))
		}
	}
	if err := errors.Join(hidden...); err != nil {
		return err
	}
	c.say("each first step shows the cause")
	for _, p := range group {
		if err := p.mend(ctx, n, p.on); err != nil {
			return fmt.Errorf("mend %q: %w", p.name, err)
		}
	}
	mended := time.Now()
	return n.seen.until(ctx, toEnd*c.minute, func(firing map[string]bool) error {
		if len(firing) > 0 {
			return fmt.Errorf("alerts that the remedies have not ended: %q", slices.Sorted(maps.Keys(firing)))
		}
		c.say("no alert any more, %v after the remedies", time.Since(mended).Round(time.Second))
		return nil
	})
}

// allFire waits until the alerts of all faults fire, and returns an error for one that is of none of them.
func allFire(ctx context.Context, c config, n *night, group []planned, begun time.Time) error {
	fired := map[string]bool{}
	return n.seen.until(ctx, toFire*c.minute, func(firing map[string]bool) error {
		for alert := range firing {
			if !fired[alert] {
				fired[alert] = true
				c.say("  %s fires after %v", alert, time.Since(begun).Round(time.Second))
			}
		}
		var missing, strange []string
		for _, p := range group {
			for _, alert := range p.on.texts(p.fires) {
				if !slices.ContainsFunc(slices.Collect(maps.Keys(fired)), func(is string) bool { return is == alert || strings.HasPrefix(is, alert+" ") }) {
					missing = append(missing, alert)
				}
			}
		}
		for alert := range fired {
			if !slices.ContainsFunc(group, func(p planned) bool { return p.expects(alert) }) {
				strange = append(strange, alert)
			}
		}
		switch {
		case len(strange) > 0:
			slices.Sort(strange)
			return fatal{fmt.Errorf("alerts that no fault has: %q", strange)}
		case len(missing) > 0:
			return fmt.Errorf("alerts that did not fire: %q", missing)
		}
		return nil
	})
}

// expects reports whether an alert belongs to the fault. An alert of the list without a name may have any.
func (p planned) expects(alert string) bool {
	return slices.ContainsFunc(p.on.texts(slices.Concat(p.fires, p.may)), func(is string) bool {
		return is == alert || !strings.Contains(is, " ") && strings.HasPrefix(alert, is+" ")
	})
}

// leads verifies that the first step that the page names, the console, and Prometheus show the cause.
func (n *night) leads(ctx context.Context, p planned) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return persist(ctx, time.Second, func() error {
		if err := n.prints(ctx, p); err != nil {
			return err
		}
		page, err := n.page(ctx, p.on.text(p.page))
		if err != nil {
			return err
		}
		if !strings.Contains(page, p.on.text(p.has)) {
			return fmt.Errorf("the page %s of the console does not have %q:\n%s", p.on.text(p.page), p.on.text(p.has), page)
		}
		if p.asks == "" || n.seen == nil {
			return nil
		}
		series, err := n.seen.query(ctx, p.on.text(p.asks))
		if err == nil && len(series) == 0 {
			err = fmt.Errorf("%s has no series", p.on.text(p.asks))
		}
		return err
	})
}

// prints verifies what the command prints in the first step, if it is one of the command.
func (n *night) prints(ctx context.Context, p planned) error {
	if p.look == nil {
		return nil
	}
	printed, err := n.command(ctx, p.on.texts(p.look)...)
	if err != nil && !errors.As(err, new(*exec.ExitError)) { // doctor ends with 1 if it has found a fault
		return err
	}
	if !regexp.MustCompile(p.on.text(p.shows)).MatchString(printed) {
		return fmt.Errorf("etcdkit %s does not show %q:\n%s", strings.Join(p.on.texts(p.look), " "), p.on.text(p.shows), printed)
	}
	return nil
}

// fatal is an error that does not pass.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// until calls fn with the alerts that fire until it returns nil, and returns its error after a time.
func (w *watcher) until(ctx context.Context, most time.Duration, fn func(firing map[string]bool) error) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return persist(ctx, scrape, func() error {
		firing, err := w.firing(ctx)
		if err != nil {
			return err
		}
		return fn(firing)
	})
}

// persist calls fn again and again until it returns nil or a fatal error, and returns its last error if ctx ends first.
func persist(ctx context.Context, pause time.Duration, fn func() error) error {
	var last error
	for {
		err := fn()
		if ctx.Err() != nil && last != nil {
			return last // that of a call that ctx has ended says nothing
		}
		if err == nil || errors.As(err, &fatal{}) {
			return err
		}
		last = err
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}
