package serve

// What has the token of a console, and where browsers reach it.
var (
	WithToken = withToken
	ReachedAt = reachedAt
)
