// Package crontab computes when a line of a crontab fires, also in the nights in which the clock is changed. It is pure:
// it reads no clock, no file and no environment.
//
//	berlin, err := time.LoadLocation("Europe/Berlin")
//	if err != nil {
//		return err // a machine may lack the zone's data
//	}
//	nightly, err := crontab.Parse("30 2 * * *", berlin)
//	if err != nil {
//		return err
//	}
//	job, err := lk.Job("report", nightly, report)
//
// This job runs once each night. In the night of March in which Berlin has no 02:30 it runs at 03:00, and in that of
// October, which has two, at the first. Parsers of Go's cron libraries leave the first night out, and some fire twice in
// the second.
//
// The meaning is that of cronie, the cron of Fedora and RHEL, version 1.7.2:
//
//   - If both the day of the month and the weekday are restricted, a line fires on days that fit one of them. A field that
//     begins with * does not count as restricted, also with a step: "0 12 */2 * 1" fires on Mondays that have an odd date.
//   - The weekdays are 0 to 7, and both 0 and 7 are Sunday: 5-7 is Friday to Sunday.
//   - A line whose minute or hour begins with * fires whenever the clock on the wall shows a time that fits: in spring
//     at none of the hour that is left out, in autumn in both hours.
//   - All other lines fire once for each time that fits: what the clock leaves out fires at the moment of the change, once,
//     and what it shows twice fires the first time alone. Changes of three hours and more count as a new time.
//   - cronie applies its rules for the changes of the clock in the zone of the machine; this package applies them in the
//     zone of the line.
//
// What cronie takes and ignores, or takes for something else, is an error: a step that is longer than its range (*/90), a
// step after a single number (5/15), @reboot, random times (~), a day that no month has.
package crontab
