// Package exporter publishes the state of all semaphores, mutexes, elections, limiters, jobs and
// stores of requests in one namespace as Prometheus metrics. One process runs it for the whole
// namespace; the same gauge from several processes must not be added up.
//
// Guaranteed: a scrape shows the state of the namespace at one revision of etcd, which
// etcdkit_exporter_revision names. Which request holds a permit is computed by the rule that
// concurrency.Status uses. A state that etcd has not confirmed for three times Options.Probe is not
// published: then the metrics of the exporter itself are all that is left, with
// etcdkit_exporter_up 0. No label has a key of a limiter, an ID, a note or a scope. Owners of sessions are
// in the label etcdkit_owner, of up to ten processes whose clocks differ, and of up to ten that died.
//
// Not guaranteed: that a scrape shows the latest revision, or each state in between. Ages are
// estimates:
//
//   - The age of a wait counts from the time that is written in the request, by the clock of its
//     process, to now, by the clock of the exporter.
//   - The time of a grant is not stored. If the exporter was watching, the age of a hold is too long
//     by at most Options.Probe and a second. If it was not, the age counts from the request or from
//     the end of the last watch, whichever is later, and so it includes a wait before the grant.
//   - etcdkit_overdue_holders counts from when the exporter first saw the grant, so it counts no
//     holder too early.
//
// The exporter needs read permission for the keys below the namespace, and no other. It has no
// session and no lease, and writes nothing. It reads the namespace page by page and then follows one
// watch, through which etcd sends it every change, also the results of requests. It keeps neither
// results nor notes: about 200 bytes for each key (BenchmarkKeys).
//
// # Metrics
//
// Each has the label etcdkit_namespace, and all but those of the namespace and the exporter have
// etcdkit_kind and etcdkit_name: the labels that observe/otelkit's and observe/promkit's metrics have in
// Prometheus. They are prefixed because a target may have the label namespace, such as in Kubernetes.
//
// Of each queue. Kinds are semaphore, mutex, election, rate (a RateLimiter, whose requests are shares),
// limiter_total, and limiter: the sum over the keys of a KeyedLimiter.
//
//	etcdkit_limit                            limit, if it is stored; not for the kind limiter
//	etcdkit_held                             weight of the requests that hold a permit
//	etcdkit_waiting                          requests that wait
//	etcdkit_waiting_weight                   their weight
//	etcdkit_oldest_wait_seconds              age of the oldest of them, or 0
//	etcdkit_oldest_hold_seconds              age of the oldest hold, or 0
//	etcdkit_oldest_hold_max_hold_seconds     MaxHold of that request, if it has one that is stored
//	etcdkit_oldest_unbounded_hold_seconds    age of the oldest hold without a stored MaxHold, or 0
//	etcdkit_overdue_holders                  holders that have held for longer than their stored MaxHold
//	etcdkit_foreign_keys                     keys that are not of this library or have no lease. Those of
//	                                         jobs, and of the rest of the namespace without
//	                                         kind and name, while there is one
//	etcdkit_unreadable_limits                limits that cannot be read, while there is one: calls
//	                                         return an error. Of the kind limiter those of keys
//	                                         and of the default
//	etcdkit_rate_per_second                  the stored rate, of the kind rate, whose limit is in shares
//
// A permit that its process keeps (concurrency.SemaphoreOptions.Keep) counts as held, in use or not.
// Requests of a limiter with a total that are admitted at their key count there as held. They wait or
// hold in the total as well, so the two kinds must not be added up. The three metrics of holds are
// those of the total then, and the kind limiter has none.
//
// Of each KeyedLimiter, of the kind limiter:
//
//	etcdkit_limiter_default_limit            limit of a key that has none of its own, if it is stored
//	etcdkit_limiter_own_limits               keys with a limit of their own, above 0
//	etcdkit_limiter_keys                     keys with at least one request
//	etcdkit_limiter_full_keys                those at which a request of weight 1 would wait, but for
//	                                         paused ones
//	etcdkit_limiter_paused_keys              those with a limit of 0 that have waits, beside others
//	                                         admitted. Their waits do not count as the
//	                                         oldest one
//
// Of each job, of the kind job. Records are those that are kept, see schedlock.Options.Keep;
// their times are those of the clocks of the processes that ran the job:
//
//	etcdkit_job_last_run_timestamp_seconds      start of the latest attempt
//	etcdkit_job_last_success_timestamp_seconds  latest end of a run without an error
//	etcdkit_job_last_failure_timestamp_seconds  latest end of a run that failed, or start of one that
//	                                            was lost and not tried again
//	etcdkit_job_last_lost_timestamp_seconds     start of the latest attempt whose process was lost,
//	                                            also if the run was tried again
//	etcdkit_job_next_fire_timestamp_seconds     fire time after the latest recorded one, or the first
//	                                            that was planned, and after the cooldown of
//	                                            AtLeast; none that came during the latest run,
//	                                            when that has ended. If it has passed, no process
//	                                            has started it. Only while a live process runs the job by
//	                                            a period, has it by Locker.Job or
//	                                            gocronlock.Cron.Plan, or calls (etcdkit jobs run)
//	                                            are expected
//	etcdkit_job_running                         1 while a run is active
//	etcdkit_job_paused                          1 while the job is paused
//	etcdkit_job_processes                       live processes that have the job, of one that was planned
//	                                            by Locker.Job or gocronlock.Cron.Plan: 0 if none has
//	                                            it any more, for a week after the last one or a Resume,
//	                                            and while it is paused
//	etcdkit_job_lost_runs                       attempts in the records whose process was lost,
//	                                            also if the run was tried again
//	etcdkit_job_failed_runs                     records of runs that failed
//
// Of each store of requests, of the kind store, with the label etcdkit_state:
//
//	etcdkit_requests    records by state: in_progress, done, failed, released, unreadable; unknown, an
//	                    attempt that was lost under the policy Refuse; orphaned, one that was lost and
//	                    is executed again by the next request
//
// And without that label:
//
//	etcdkit_requests_unknown_of_one_scope    requests that are unknown of the scope that has the most: one
//	                                         tenant's input may be what makes them
//
// Of the namespace:
//
//	etcdkit_sessions              live sessions
//	etcdkit_leases                leases that have keys
//	etcdkit_keys                  keys
//	etcdkit_clock_skew_seconds    greatest difference, over the live sessions, between a time that a
//	                              process has written and the time at which the exporter received it.
//	                              It includes the time that the change took to arrive. There is none of
//	                              a process that has written nothing for 15 minutes, or since the
//	                              exporter watches
//
// Of processes whose clocks differ by a second or more, with the label etcdkit_owner: the owner of the
// session, see concurrency.SessionOptions. At most ten are published, those with the greatest differences:
//
//	etcdkit_process_clock_skew_seconds    as etcdkit_clock_skew_seconds
//
// Of processes that died, or lost their lease, within an hour, the latest ten, with the label etcdkit_owner: those
// that held a permit, ran a job or executed a request, as far as the exporter watched then:
//
//	etcdkit_process_died_timestamp_seconds    when the exporter saw it
//
// Of the exporter:
//
//	etcdkit_exporter_up                              1 if the published state is confirmed
//	etcdkit_exporter_revision                        revision of etcd that the state has reached
//	etcdkit_exporter_last_answer_timestamp_seconds   time of etcd's latest answer
//	etcdkit_exporter_lists_total                     reads of the whole namespace
//	etcdkit_exporter_series_dropped                  series that Options.MaxNames leaves out
package exporter
