package members

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// play runs a script of events against a judge and returns what it has ordered, as "MS WHAT …" in its
// order. An event is "MS VERB ARGS": late and intime say whether a call is late from then on, answer and
// fail are of probes, pause is a process that did not run, look has the judge decide, and members are the
// endpoints from then on. It decides after each event, and when it wanted to.
func play(t *testing.T, script string) (orders []string) {
	t.Helper()
	start := time.Unix(1e9, 0)
	j := newJudge(start, 0)
	late, endpoints := false, []string{"a", "b", "c"}
	due := time.Duration(-1)
	decide := func(at time.Duration) {
		o := j.decide(start.Add(at), late, endpoints)
		note := func(what string, names ...string) {
			orders = append(orders, strings.TrimSpace(strconv.FormatInt(at.Milliseconds(), 10)+" "+what+" "+strings.Join(names, "")))
		}
		if len(o.probe) > 0 {
			note("probe", o.probe...)
		}
		for _, name := range o.hang {
			note("hang", name)
		}
		if len(o.forget) > 0 {
			note("forget", o.forget...)
		}
		if o.leave {
			note("leave")
		}
		due = -1
		if !o.decides.IsZero() {
			require.True(t, o.decides.After(start.Add(at)), "the next decision is due at once, for ever")
			due = o.decides.Sub(start)
		}
	}
	for line := range strings.Lines(script) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		ms, err := strconv.Atoi(f[0])
		require.NoError(t, err)
		at := time.Duration(ms) * time.Millisecond
		for f[1] != "pause" && due >= 0 && due <= at {
			decide(due)
		}
		switch f[1] {
		case "late":
			late = true
		case "intime":
			late = false
		case "answer":
			for _, name := range f[2:] {
				if j.answered(name, start.Add(at)) {
					orders = append(orders, f[0]+" back "+name)
				}
			}
		case "fail":
			j.failed(f[2], start.Add(at))
		case "pause":
			j.pause(start.Add(at))
		case "members":
			endpoints = f[2:]
		}
		decide(at)
	}
	return orders
}

func TestJudge(t *testing.T) {
	for name, tt := range map[string]struct{ script, want string }{
		"M9: a member that answers 200 ms after another hangs, and its answer brings it back": {`
			0 late
			2 answer a b
			300 intime
			900 answer c
			3000 look`, `
			0 probe abc
			202 hang c
			250 probe ab
			900 back c`},
		"A142: where all are busy, and even the first answer takes long, the others may take four times as long": {`
			0 late
			100 answer a b
			390 answer c
			460 intime
			900 answer a
			3600 look`, `
			0 probe abc
			250 probe ab
			2850 hang b`},
		"A142: answers that come soon shorten that": {`
			0 late
			1300 answer a b
			1305 answer a b
			1555 answer a b
			1805 answer a b
			2055 answer a b
			2800 look`, `
			0 probe abc
			1500 probe ab
			1750 probe ab
			1805 hang c
			2750 probe ab`},
		"M9: lateness alone leaves out no member: none answers": {`
			0 late
			5000 look`, `
			0 probe abc`},
		"M9: lateness alone leaves out no member: all answer": {`
			0 late
			150 answer a b c
			300 answer a b c
			500 look`, `
			0 probe abc
			250 probe abc
			500 probe abc`},
		"M9: the last one is not left out": {`
			0 late
			2 answer a
			300 answer a
			800 look
			20000 look`, `
			0 probe abc
			202 hang b
			202 hang c
			250 probe a
			500 probe a`},
		"M9: an older answer of another is no evidence": {`
			0 late
			1 answer a b c
			250 look
			251 answer a
			252 intime
			452 answer b
			453 answer c`, `
			0 probe abc
			250 probe abc
			451 hang b
			451 hang c
			452 back b
			453 back c`},
		"M9: one that was left out is no reason for ever: the other hangs, and it is back": {`
			0 late
			1 answer b c
			210 answer b c
			251 answer c
			460 answer a
			700 look
			701 answer a c
			900 look`, `
			0 probe abc
			201 hang a
			250 probe bc
			451 hang b
			460 back a
			500 probe ac
			750 probe ac`},
		"M9: a client that was paused looks for answers first": {`
			0 late
			1 answer a b
			2000 pause
			2000 look
			2100 answer c
			2150 intime
			4000 look`, `
			0 probe abc
			2000 probe ab`},
		"M9: and decides 200 ms later by what has not come": {`
			0 late
			1 answer a b
			2000 pause
			2000 look
			2100 intime
			2300 look`, `
			0 probe abc
			2000 probe ab
			2200 hang c`},
		"a member that is only slow is given longer": {`
			0 late
			2 answer a b
			300 answer c
			301 answer a b
			501 answer a b c
			502 answer a b
			751 answer a b
			1100 answer c
			1140 intime
			1200 look`, `
			0 probe abc
			202 hang c
			250 probe ab
			300 back c
			500 probe abc
			750 probe abc
			1000 probe ab`},
		"and hangs if it takes longer than that": {`
			0 late
			2 answer a b
			300 answer c
			500 answer a b
			760 answer a b
			770 intime
			5000 look`, `
			0 probe abc
			202 hang c
			250 probe ab
			300 back c
			500 probe c
			750 probe ab
			1160 hang c`},
		"a member that is down does not hang": {`
			0 late
			1 fail c
			2 answer a b
			240 intime
			500 look
			4000 look`, `
			0 probe abc
			3002 leave
			4000 leave`},
		"a connection that breaks brings back no member, before 20 s": {`
			0 late
			1 answer a b
			210 intime
			5000 fail c
			5001 answer c
			5002 look`, `
			0 probe abc
			201 hang c
			5000 probe c
			5001 back c`},
		"it is given up after 20 s": {`
			0 late
			1 answer a b
			210 intime
			21000 fail c
			23000 look
			25000 look`, `
			0 probe abc
			201 hang c
			24000 leave
			25000 leave`},
		"after 3 s without trouble, the client again": {`
			0 late
			1 answer a b
			260 answer a b
			300 intime
			600 answer c
			3500 look
			3700 look`, `
			0 probe abc
			201 hang c
			250 probe ab
			600 back c
			3300 leave
			3500 leave
			3700 leave`},
		"endpoints are read anew": {`
			0 late
			1 answer a b c
			100 members a b d
			260 look`, `
			0 probe abc
			250 probe abd
			250 forget c`},
		"no probe is sent twice, and rounds become rare": {`
			0 late
			5200 look`, `
			0 probe abc`},
		"rounds become rare": {`
			0 late
			1 answer a b c
			251 answer a b c
			501 answer a b c
			751 answer a b c
			1001 answer a b c
			1251 answer a b c
			1501 answer a b c
			1751 answer a b c
			2001 answer a b c
			2999 look
			3002 answer a b c`, `
			0 probe abc
			250 probe abc
			500 probe abc
			750 probe abc
			1000 probe abc
			1250 probe abc
			1500 probe abc
			1750 probe abc
			2750 probe abc`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want []string
			for line := range strings.Lines(tt.want) {
				if line = strings.TrimSpace(line); line != "" {
					want = append(want, line)
				}
			}
			got := play(t, tt.script)
			require.ElementsMatch(t, want, got, "%s", strings.Join(got, "\n"))
		})
	}
}

// M9: when the last member that has answered fails, the others are not left out any more: nothing else could take
// their calls.
func TestLastMember(t *testing.T) {
	t.Parallel()
	j := judged(true)
	at := time.Unix(1, 0)
	require.True(t, j.hangs("c"))
	j.failed("a", at)
	require.True(t, j.hangs("c"), "b answers")
	j.failed("b", at)
	require.False(t, j.hangs("c"))
	require.False(t, j.hangs(""))
	j.members["b"].asked = at
	j.answered("b", at)
	require.True(t, j.hangs("c"), "b is back")
}
