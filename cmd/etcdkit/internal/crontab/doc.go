// Package crontab reads crontab files, and computes when their lines fire. It is pure: it reads no clock, no file and no
// environment.
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
//   - CRON_TZ sets the zone of the lines that follow. cronie applies its rules for the changes of the clock in the zone of
//     the machine; this package applies them in the zone of the line.
//
// What cronie takes and ignores, or takes for something else, is refused: a step that is longer than its range (*/90), a
// step after a single number (5/15), @reboot, random times (~), MAILTO with an address, root in a user column, a byte order mark,
// a variable whose name no shell takes.
package crontab
