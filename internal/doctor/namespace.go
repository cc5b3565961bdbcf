package doctor

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/etcdkit/etcdkit/internal/record"
)

// The judgments of what services keep in a namespace. The command reads it for them; the console has it from its watch.

// DefaultPaused is the finding of a limiter whose default limit is 0. word is its name, as a shell takes it.
func DefaultPaused(name, word string) []Finding {
	return One(Warn, fmt.Sprintf("'etcdkit limit %s N' admits again.", word), "%s: its keys are paused by a default limit of 0", name)
}

// QueueForeign is the finding of a queue with foreign keys, of which it names some.
func QueueForeign(name string, keys []string) []Finding {
	named := quotedKeys(keys)
	return One(Warn, "Such a key holds up no request, and never expires: find the program that writes it, and delete it with etcdctl.",
		"%s: %s: %s", name, count(len(keys), "foreign key", "foreign keys"), named)
}

// LimitUnreadable is the finding of a queue whose limit cannot be read, and why. It is no foreign key: that of a later release is
// good.
func LimitUnreadable(name string, why record.UnreadableError) []Finding {
	advice := "Nothing is admitted: find the program that has written it, delete it with etcdctl, and set the limit again."
	if why.Version > 0 {
		advice = "Processes of that release read it: leave it, and update the others, which admit nothing."
	}
	return One(Warn, advice, "%s: its limit cannot be read: %v", name, why)
}

// QueueOverdue is the finding of a queue of which so many requests hold for longer than their MaxHold, and so many others may.
func QueueOverdue(name string, late, may int) []Finding {
	const advice = "Its process should have ended the permit: it stands still, or does not reach etcd. 'etcdkit show' names it, 'etcdkit evict' ends the permit."
	switch {
	case late > 0:
		return One(Warn, advice, "%s: %s held for longer than MaxHold", name, count(late, "permit is", "permits are"))
	case may > 0:
		return One(Note, advice+" A request that waited before may have held for less: the time of a grant is not stored.",
			"%s: %s longer ago than its MaxHold, and may hold for longer", name, count(may, "holder has asked", "holders have asked"))
	}
	return nil
}

// QueueSlow is the finding of a queue in which a request has waited for longer than an alert allows.
func QueueSlow(name string, since time.Time) []Finding {
	return One(Warn, "Its permits have been in use for so long: 'etcdkit show' names the holders, one of which may hang; else the limit is too low.",
		"%s: a request has waited since %s", name, stamp(since))
}

// QueueHeld is the finding of a queue with a permit without a MaxHold that was held for longer than an alert allows.
func QueueHeld(name string, since time.Time) []Finding {
	return One(Warn, "The work is slow, or did not release it: 'etcdkit show' names the holder, 'etcdkit evict' ends the permit. MaxHold bounds it.",
		"%s: a permit without a MaxHold has been held since %s", name, stamp(since))
}

// QueuePaused is the finding of a queue with a limit of 0. word is its name, as a shell takes it, with the options that
// its limit needs.
func QueuePaused(name, word string, waiting int) []Finding {
	return One(Warn, fmt.Sprintf("Nothing is admitted; 'etcdkit limit %s N' admits again.", word), "%s: paused by a limit of 0, %d wait", name, waiting)
}

// Queues, Jobs and Stores say how many were examined.
func Queues(n int) []Finding {
	return One(OK, "", "%s; each key of a limiter counts as one", count(n, "queue", "queues"))
}

// Jobs is as Queues.
func Jobs(n int) []Finding { return One(OK, "", "%s", count(n, "job", "jobs")) }

// Stores is as Queues.
func Stores(n int) []Finding {
	return One(OK, "", "%s of requests", count(n, "store", "stores"))
}

// JobPaused is the finding of a paused job. by is empty if the record of the pause cannot be read.
func JobPaused(name, by, reason string, since, now time.Time) []Finding {
	if by == "" {
		return One(Warn, "The record is damaged, or of a later release. 'etcdkit jobs resume' lets the job start again.",
			"job %s: paused, and the record of that cannot be read", name)
	}
	ago := "-"
	if !since.IsZero() {
		ago = brief(now.Sub(since))
	}
	return One(Warn, "'etcdkit jobs resume' lets it start again.", "job %s: paused by %s for %s: %s", name, by, ago, cmp.Or(reason, "-"))
}

// JobForeign is the finding of a job with foreign keys.
func JobForeign(name string, keys int) []Finding {
	return One(Warn, "Such a key never expires: find the program that writes it, and delete it with etcdctl.",
		"job %s: %s", name, count(keys, "foreign key", "foreign keys"))
}

// JobUnstarted is the finding of a job that no process has started since a fire time.
func JobUnstarted(name string, since time.Time) []Finding {
	return One(Warn,
		"The processes that have the job are stopped, busy, or do not reach etcd. The lease of one of them lives: after a restore, or "+
			"a crash, until its TTL is over. Of 'etcdkit jobs run' no machine calls any more.",
		"job %s: no process has started it since its tick of %s", name, stamp(since))
}

// JobGone is the finding of a job whose schedule no live process has any more.
func JobGone(name string) []Finding {
	return One(Warn, "Start a process that has it, or restart one that should have it; only if it is retired, 'etcdkit jobs forget' ends this.",
		"job %s: no live process has it any more", name)
}

// Unknown judges the requests of a store: how many were read, and of how many of these the outcome is unknown, by their
// policies.
func Unknown(name string, read, refused, open int) []Finding {
	switch {
	case refused > 0:
		return One(Warn,
			"Their duplicates are refused until an operator finds out what was done: 'etcdkit requests list STORE --state unknown', "+
				"'etcdkit requests resolve'.", "store %s: %d of %d requests have an unknown outcome", name, refused, read)
	case open > 0:
		return One(Note, "If no client sends them again, they are not executed: 'etcdkit requests list STORE --state unknown' lists them.",
			"store %s: %d of %d requests were lost, and their next duplicates repeat them", name, open, read)
	}
	return nil
}

// Unreadable is the finding of a store with records that cannot be read.
func Unreadable(name string, n int) []Finding {
	if n == 0 {
		return nil
	}
	return One(Warn,
		"Nothing executes at these keys until they can be read or are deleted: 'etcdkit requests list STORE --state unreadable'. One of a "+
			"later release is read by that one: leave it.", "store %s: %s cannot be read", name, count(n, "record", "records"))
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// brief returns a duration to a second, "0s" if it is negative.
func brief(d time.Duration) string { return max(0, d).Truncate(time.Second).String() }
