// Package otelkit reports what hooks see to OpenTelemetry: durations and counts as metrics, calls as
// spans. It uses OpenTelemetry's API alone; the program chooses SDK and exporters.
//
//	hooks, err := otelkit.New(nil) // the global providers
//	if err != nil {
//		return err
//	}
//	sess, err := concurrency.NewSession(opening, client, "payments", &concurrency.SessionOptions{
//		Hooks: []observe.Hooks{hooks},
//	})
//
// # Metrics
//
// Each operation has a histogram of its duration in seconds, with buckets from 1 ms to 300 s:
// etcdkit.acquire.duration (also of campaigns), etcdkit.hold.duration (also of terms),
// etcdkit.release.duration, etcdkit.claim.duration, etcdkit.run.duration, etcdkit.begin.duration,
// etcdkit.execute.duration and etcdkit.record.duration. Their attributes are etcdkit.kind, etcdkit.name,
// etcdkit.result and, if there is one, etcdkit.reason: the words of package observe. A result that is lost,
// failed or error has error.type as well.
//
//	etcdkit.active                   {operation} operations (etcdkit.op) that have begun and not ended
//	etcdkit.job.delay                s           of a granted claim, after its fire time; none of schedlock.Every
//	etcdkit.permit.lost              {permit}    by etcdkit.reason
//	etcdkit.overrun.duration         s           work that continued after a loss
//	etcdkit.session.lost             {session}
//	etcdkit.session.recovered        {session}
//	etcdkit.session.without_lease    {session}   sessions that are lost, not recovered and not closed, now
//	etcdkit.session.renewal.age      s           from the sending of one renewal to the answer to the next
//	etcdkit.session.renewal.lateness 1           that age divided by the TTL
//	etcdkit.limit.changes            {change}
//	etcdkit.rate.calls               {call}      of RateLimiter.Allow and Wait, by etcdkit.result and etcdkit.reason
//	etcdkit.hook.panics              {panic}     of any hook (observe.HookPanicked)
//	etcdkit.outage.active            {policy}    outage policies (etcdkit.policy) that decide now
//	etcdkit.request.unclaimed        {request}   handlers that ran without a claim (FailOpen)
//
// All have the attribute etcdkit.namespace. Keys, scopes, references, tokens and IDs are attributes of
// spans, never of metrics. Names beyond Options.MaxNames are reported as "_other".
//
// In Prometheus, a name of a semaphore has 63 series in each process: three histograms of 20 series and three
// gauges. Each further result or reason of a call adds 20. Options.MaxNames bounds the names, a View of the SDK
// the series of each: see the example. observe/promkit has the same metrics for Prometheus alone.
//
// # Spans
//
// Each call has a span, named after its operation ("etcdkit.acquire"), whose end is that of the call; the
// span of a hold ends when the holder ended its work, not when etcd confirmed that. A hold, a run and
// an execution are siblings of the call that was granted them, not its children, since that has ended.
// Reports of waiting are events of the acquire's span. If the holder that is waited for has a Note that
// begins with a text of Note, the span is linked to the holder's.
//
// # Not guaranteed
//
// A process that is killed ends no span and no active call. The metrics are those of one process: what
// a whole fleet holds is not the sum of etcdkit.active, since processes that ended uncleanly are missing.
package otelkit
