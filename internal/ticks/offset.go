package ticks

import "time"

// mostBounds is how many bounds of a zone are looked at for a change of its offset: more than any zone has in a century.
const mostBounds = 1000

// Offset returns when the rule of t's zone that is in force at t began, as t.ZoneBounds does, and when the offset of the zone changes
// next; or zero for what does not exist. ZoneBounds alone depends on the format of the zone's file: on the last day of a leap
// year its end is not after t if the file gives the rule and not the changes (Go 1.26), and an end may change only the zone's name.
func Offset(t time.Time) (began, changes time.Time) {
	began, changes = t.ZoneBounds()
	_, offset := t.Zone()
	for range mostBounds {
		if changes.IsZero() {
			break
		}
		if !changes.After(t) {
			changes = t.Add(24 * time.Hour)
		}
		if _, next := changes.Zone(); next != offset {
			return began, changes
		}
		t = changes
		_, changes = t.ZoneBounds()
	}
	return began, time.Time{}
}
