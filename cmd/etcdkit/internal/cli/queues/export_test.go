package queues

// ShownQueue is what `show` prints.
type ShownQueue = shownQueue

// What tests with an etcd reach: a call of it whose session they choose.
var (
	Redraw     = redraw
	ListQueues = listQueues
)
