// Package alertday runs the alert rules of docs/observability against a day that was recorded: a fleet that is healthy
// and busy, and then one with a fault. Its processes' metrics and the exporter's are sampled, each sample stands for a
// minute, and promtool evaluates the rules (`make alerts-day`).
package alertday
