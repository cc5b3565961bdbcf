// Package crontab reads crontab files. It is pure: it reads no clock, no file and no environment. Package
// schedlock/crontab has the fire times of their lines, and what the five fields mean; that meaning is cronie's.
//
// CRON_TZ sets the zone of the lines that follow.
//
// What cronie takes and ignores, or takes for something else, is refused: MAILTO with an address, root in a user column,
// a byte order mark, a variable whose name no shell takes, and what schedlock/crontab refuses.
package crontab
