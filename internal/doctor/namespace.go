package doctor

import (
	"cmp"
	"fmt"
	"strconv"
	"time"
)

// The judgments of what services keep in a namespace. The command reads it for them; the console has it from its watch.

// Sessions judges how many live sessions there are. oldest and by are those of the oldest one, as far as they are known.
func Sessions(n int, oldest time.Time, by string, now time.Time) []Finding {
	if n == 0 {
		return One(Warn, "No service uses the namespace: check its name and --prefix.", "no live session")
	}
	return One(OK, "", "%s, the oldest by %s for %s", count(n, "live session", "live sessions"), cmp.Or(by, "-"), brief(now.Sub(oldest)))
}

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
		"job %s: no process has started it since its tick of %s", name, since.UTC().Format("2006-01-02T15:04:05.999Z07:00"))
}

// JobLost judges how many of a job's stored runs were lost.
func JobLost(name string, lost, stored int) []Finding {
	if lost == 0 {
		return nil
	}
	return One(Warn,
		"Their processes died or were cut off. Without Retries such a tick is not repeated; 'etcdkit jobs history' has the times and "+
			"owners.", "job %s: %d of %d stored runs were lost", name, lost, stored)
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
		return One(OK, "", "store %s: %d of %d requests were lost, and their next duplicates repeat them", name, open, read)
	}
	return nil
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// brief returns a duration to a second, "0s" if it is negative.
func brief(d time.Duration) string { return max(0, d).Truncate(time.Second).String() }
