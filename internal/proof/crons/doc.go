// Package crons has plans of crontab lines by another implementation of cron, with which those of the adapters and of `etcdkit
// cron` are compared: thirty lines of public crontabs in sixteen zones, for the year 2020, by cronie 1.7.2.
//
// The plans (plans.txt) are what cronie's own code did, its loop, its parser and its queue, under a clock that does not wait:
// cronie/generate.sh compiles it and runs the year. Each line of text is a zone, a line of a crontab, how many fire times are
// not around a change of the clock, a digest of them, and those around each change.
package crons
