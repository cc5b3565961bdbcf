package exporter

import "github.com/prometheus/client_golang/prometheus"

// descs are the metrics. The package's comment says what each means.
type descs struct {
	limit, held, waiting, waitingWeight, oldestWait, oldestHold, maxHold, unbounded, overdue, foreign, unreadable, perSecond *prometheus.Desc
	limiterDefault, limiterOwn, limiterKeys, limiterFull, limiterPaused                                                      *prometheus.Desc
	jobSuccess, jobFailure, jobRun, jobNext, jobRunning, jobPaused, jobProcesses, jobLost, jobLostAt, jobFailed              *prometheus.Desc
	requests, unknownOfOneScope                                                                                              *prometheus.Desc
	sessions, leases, keys, skew, off, died                                                                                  *prometheus.Desc
	up, revision, answer, lists, dropped                                                                                     *prometheus.Desc

	all   []*prometheus.Desc
	named map[*prometheus.Desc]named
	made  *made
}

// named is the name of a metric, and its help.
type named struct{ name, help string }

func newDescs(namespace string) descs {
	d, constant := descs{named: map[*prometheus.Desc]named{}, made: &made{}}, prometheus.Labels{"etcdkit_namespace": namespace}
	of := func(labels ...string) func(name, help string) *prometheus.Desc {
		return func(name, help string) *prometheus.Desc {
			desc := prometheus.NewDesc("etcdkit_"+name, help, labels, constant)
			d.all = append(d.all, desc)
			d.named[desc] = named{"etcdkit_" + name, help}
			return desc
		}
	}
	subject, request, namespaced := of("etcdkit_kind", "etcdkit_name"), of("etcdkit_kind", "etcdkit_name", "etcdkit_state"), of()
	queue, limiter, job, store := subject, subject, subject, subject

	d.limit = queue("limit", "Limit of the queue.")
	d.held = queue("held", "Weight of the requests that hold a permit.")
	d.waiting = queue("waiting", "Requests that wait.")
	d.waitingWeight = queue("waiting_weight", "Weight of the requests that wait.")
	d.oldestWait = queue("oldest_wait_seconds", "Age of the oldest request that waits, by the clocks of its process and of the exporter; 0 if none waits. Of a limiter without its paused keys.")
	d.oldestHold = queue("oldest_hold_seconds", "Greatest possible age of the oldest hold; 0 if no request holds.")
	d.maxHold = queue("oldest_hold_max_hold_seconds", "MaxHold of the request with the oldest hold, if it has one.")
	d.unbounded = queue("oldest_unbounded_hold_seconds", "Greatest possible age of the oldest hold without a stored MaxHold; 0 if there is none.")
	d.overdue = queue("overdue_holders", "Requests that have held for longer than their MaxHold since the exporter saw the grant.")
	d.foreign = queue("foreign_keys", "Keys in the range of the queue that another program has written, or that have no lease. Of a job, and without kind and name of the rest of the namespace, those that are not of etcdkit; only while there is one.")
	d.unreadable = queue("unreadable_limits", "Limits that cannot be read, of a queue, or of the keys of a limiter and their default; only while there is one.")
	d.perSecond = queue("rate_per_second", "Rate that is stored, of the queue of a rate's shares.")

	d.limiterDefault = limiter("limiter_default_limit", "Limit of each key of the limiter that has none of its own.")
	d.limiterOwn = limiter("limiter_own_limits", "Keys of the limiter with a limit of their own, above 0.")
	d.limiterKeys = limiter("limiter_keys", "Keys of the limiter with at least one request.")
	d.limiterPaused = limiter("limiter_paused_keys", "Keys of the limiter with a limit of 0 at which requests wait, beside others that are admitted.")
	d.limiterFull = limiter("limiter_full_keys", "Keys of the limiter at which a request of weight 1 would wait, but for those that are paused.")

	d.jobRun = job("job_last_run_timestamp_seconds", "Start of the latest recorded attempt.")
	d.jobSuccess = job("job_last_success_timestamp_seconds", "Latest recorded end of a run without an error.")
	d.jobFailure = job("job_last_failure_timestamp_seconds", "Latest recorded end of a run that failed, or start of one that was lost and not tried again.")
	d.jobNext = job("job_next_fire_timestamp_seconds", "By when a start is due: the fire time after the latest recorded one and not during a run that has ended, or the first one of a job that has not run, while a live process has the job or calls are expected.")
	d.jobRunning = job("job_running", "Whether a run of the job is active.")
	d.jobPaused = job("job_paused", "Whether the job is paused.")
	d.jobProcesses = job("job_processes", "Live processes that have the job, of one that was planned: 0 if none has it, for a week, or while it is paused.")
	d.jobLost = job("job_lost_runs", "Attempts in the kept records whose process was lost, also if the run was tried again.")
	d.jobLostAt = job("job_last_lost_timestamp_seconds", "Start of the latest attempt in the kept records whose process was lost.")
	d.jobFailed = job("job_failed_runs", "Kept records of runs that failed.")

	d.requests = request("requests", "Records of requests in the store, by state.")
	d.unknownOfOneScope = store("requests_unknown_of_one_scope", "Requests of unknown outcome, refused, of the scope that has the most.")

	d.sessions = namespaced("sessions", "Live sessions.")
	d.leases = namespaced("leases", "Leases that have keys in the namespace.")
	d.keys = namespaced("keys", "Keys in the namespace.")
	d.skew = namespaced("clock_skew_seconds", "Greatest difference between a time that a live process has written and the time at which the exporter received it.")
	d.off = of("etcdkit_owner")("process_clock_skew_seconds", "The same, of the processes whose clocks differ the most, by a second or more.")
	d.died = of("etcdkit_owner")("process_died_timestamp_seconds", "When the session of a process ended while it held a permit, ran a job or executed a request, of the latest ten within an hour.")

	d.up = namespaced("exporter_up", "Whether etcd has confirmed the published state lately.")
	d.revision = namespaced("exporter_revision", "Revision of etcd that the published state has reached.")
	d.answer = namespaced("exporter_last_answer_timestamp_seconds", "Time of etcd's latest answer about the namespace.")
	d.lists = namespaced("exporter_lists_total", "Reads of the whole namespace.")
	d.dropped = namespaced("exporter_series_dropped", "Series that are not published because there are more names than MaxNames.")
	return d
}
