package doctor

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// raised is an alarm of a member, as each member lists those of the whole cluster.
type raised struct {
	member uint64
	name   string
}

var alarmText = regexp.MustCompile(`^memberID:(\d+)\s+alarm:(\w+)\s*$`)

// Alarms judges the alarms of the cluster, each once, and what else a member reports of itself.
func Alarms(s Survey) (found []Finding) {
	var alarms []raised
	for _, a := range s.Answers {
		if a.kind() != member {
			continue
		}
		for _, text := range a.Status.GetErrors() {
			m := alarmText.FindStringSubmatch(text)
			switch {
			case m != nil:
				id, _ := strconv.ParseUint(m[1], 10, 64)
				alarms = append(alarms, raised{id, m[2]})
			case strings.Contains(text, "no leader"): // said of the endpoint
			default:
				found = append(found, One(Warn, "See etcd's log.", "%s: %s", a.Endpoint, text)...)
			}
		}
	}
	slices.SortFunc(alarms, func(a, b raised) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.member, b.member)) })
	for _, r := range slices.Compact(alarms) {
		found = append(found, alarm(s, r)...)
	}
	return found
}

func alarm(s Survey, r raised) []Finding {
	text := fmt.Sprintf("%s, raised by member %s", r.name, s.named(r.member))
	switch r.name {
	case "NOSPACE":
		return One(Fail, "etcd refuses writes: nothing new is admitted. See docs/operations.md, etcd is out of space.", "%s", text)
	case "CORRUPT":
		return One(Fail, "Members differ in their data. Replace this one, see etcd's documentation; until then nothing can be trusted.", "%s", text)
	}
	return One(Warn, "See etcd's log.", "%s", text)
}
