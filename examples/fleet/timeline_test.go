package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// drawn draws a script and checks that the result is XML.
func drawn(t *testing.T, c config, s script) string {
	t.Helper()
	svg := newPicture(c, 1*ms, s.events, judge(s.events, c.limit), []change{{At: 2 * ms, N: 1}, {At: 90 * ms}}).svg()
	for dec := xml.NewDecoder(bytes.NewReader(svg)); ; {
		_, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return string(svg)
		}
		if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
	}
}

func TestTimeline(t *testing.T) {
	var s script
	s.whole(0, 10, 50)
	s.hold(1, 5, 12)
	s.step(1, 13, 0, 30)
	s.on(1, 15, evStop)
	s.on(1, 60, evCont)
	s.notices(1, 61, 30, lost)
	s.hold(2, 8, 52)
	s.on(2, 70, evKill)
	s.hold(3, 53, 55)
	s.notices(3, 90, 80, stuck)
	c := config{workers: 4, limit: 2}
	svg := drawn(t, c, s)
	for _, want := range []string{
		"1 executions under a limit of 2",
		"4 worker processes, 1 killed, 1 paused past the TTL; never more than 2 working at the same time",
		"worker 1<", "worker 4<",
		"execution 0, attempt 1: succeeded after 40ms",
		"execution 1, attempt 1: paused past its TTL after 3ms",
		"execution 2, attempt 1: killed after 18ms",
		"execution 3, attempt 1: held too long after 25ms",
		">limit<", "permits held in etcd",
	} {
		if !strings.Contains(svg, want) {
			t.Errorf("%q is missing in\n%s", want, svg)
		}
	}
	if svg != drawn(t, c, s) {
		t.Error("the same run is drawn in two ways")
	}
}

func TestTimelineOfABrokenLimit(t *testing.T) {
	var s script
	s.whole(0, 10, 50)
	s.whole(1, 10, 50)
	if svg := drawn(t, config{workers: 2, limit: 1}, s); !strings.Contains(svg, "2 WORKING AT THE SAME TIME") {
		t.Errorf("it does not in\n%s", svg)
	}
}

func TestTimelineOfNothing(t *testing.T) {
	drawn(t, config{workers: 200, limit: 5}, script{})
}
