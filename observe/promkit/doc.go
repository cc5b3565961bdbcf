// Package promkit reports what hooks see to Prometheus, by client_golang: durations and counts as metrics.
//
//	hooks, err := promkit.New(prometheus.DefaultRegisterer, nil)
//	if err != nil {
//		return err
//	}
//	sess, err := concurrency.NewSession(opening, client, "payments", &concurrency.SessionOptions{
//		Hooks: []observe.Hooks{hooks},
//	})
//
// The metrics are those that observe/otelkit reports through OpenTelemetry's exporter for Prometheus, with
// the same names, labels, buckets and help, so the alerts and the dashboard of docs/observability serve
// both. That package's comment describes them; dots are underscores here, seconds and counters have the
// suffixes _seconds and _total:
//
//	etcdkit_acquire_duration_seconds    etcdkit_session_lost_total
//	etcdkit_hold_duration_seconds       etcdkit_session_recovered_total
//	etcdkit_release_duration_seconds    etcdkit_session_without_lease
//	etcdkit_claim_duration_seconds      etcdkit_session_renewal_age_seconds
//	etcdkit_run_duration_seconds        etcdkit_session_renewal_lateness
//	etcdkit_begin_duration_seconds      etcdkit_permit_lost_total
//	etcdkit_execute_duration_seconds    etcdkit_limit_changes_total
//	etcdkit_record_duration_seconds     etcdkit_rate_calls_total
//	etcdkit_overrun_duration_seconds    etcdkit_outage_active
//	etcdkit_job_delay_seconds           etcdkit_hook_panics_total
//	etcdkit_active                      etcdkit_request_unclaimed_total
//
// A name of a semaphore has 63 series in each process: three histograms of 20 series and three gauges.
// Each further result or reason of a call adds 20. Options.MaxNames bounds the names, Options.Buckets the
// series of a histogram.
//
// # Not guaranteed
//
// A process that is killed ends no active call. The metrics are those of one process: what a whole fleet
// holds is not the sum over its processes. The package exporter publishes the state of the fleet.
package promkit
