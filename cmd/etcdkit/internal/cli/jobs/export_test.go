package jobs

// ListJobs is reached by a test with a session of its own.
var ListJobs = listJobs
