// Package alertday runs the alert rules of docs/observability against a day that was recorded: a fleet that is healthy
// and busy, with what each demo does, one with all faults that concern one name each, and some with a fault that concerns
// all. Its processes' metrics and the exporter's are sampled, each sample stands for a minute, and promtool evaluates the
// rules at each of them (`make alerts-day`). What is recorded of the healthy fleet is repeated until it is longer than any
// alert is pending. Each row of docs/failure-modes.md is one of the faults, or has a reason.
package alertday
