package observe

import "context"

// Hooks are called while calls of etcdkit run. Either function may be nil. Both are called by several
// goroutines at once.
type Hooks struct {
	// Start is called when a call begins. The function that it returns is called once when the call
	// ends; nil means that the end is not of interest. The values of the returned context are those
	// under which the call continues: its requests to etcd have them, and so has the context of the work
	// for Hold, Lead, Run and Execute. The cancellation stays that of ctx. nil stands for ctx.
	Start func(ctx context.Context, call Call) (context.Context, func(Outcome))
	// Event is called for what belongs to no call. The ctx has the values of the call that the event
	// concerns, if there is one, and never ends.
	Event func(ctx context.Context, event Event)
}
