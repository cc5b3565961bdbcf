package measure

import (
	"sync"

	"github.com/etcdkit/etcdkit/observe"
)

// Label is the name of a label, as OpenTelemetry writes it.
type Label string

// The labels. The values of each are few.
const (
	Namespace Label = "etcdkit.namespace"
	Kind      Label = "etcdkit.kind"
	Name      Label = "etcdkit.name"
	Op        Label = "etcdkit.op"
	Result    Label = "etcdkit.result"
	Reason    Label = "etcdkit.reason"
	Policy    Label = "etcdkit.policy"
	ErrorType Label = "error.type" // of OpenTelemetry's conventions
)

// Prometheus returns the label's name in Prometheus.
func (l Label) Prometheus() string { return underscored(string(l)) }

// Labels are the values of a series. An empty one is not there.
type Labels struct {
	Namespace string
	Kind      observe.Kind
	Name      string
	Op        observe.Op
	Result    observe.Result
	Reason    observe.Reason
	Policy    string
	ErrorType string
}

// Value returns the value of one label.
func (l Labels) Value(of Label) string {
	switch of {
	case Namespace:
		return l.Namespace
	case Kind:
		return string(l.Kind)
	case Name:
		return l.Name
	case Op:
		return string(l.Op)
	case Result:
		return string(l.Result)
	case Reason:
		return string(l.Reason)
	case Policy:
		return l.Policy
	}
	return l.ErrorType
}

// IsError reports whether a result is one that a person should look at.
func IsError(r observe.Result) bool {
	return r == observe.Lost || r == observe.Error || r == observe.Failed
}

// ErrorTypeOf returns the error.type of an outcome, or "" if it is no error.
func ErrorTypeOf(o observe.Outcome) string {
	switch {
	case !IsError(o.Result):
		return ""
	case o.Reason != "":
		return string(o.Reason)
	}
	return string(o.Result)
}

// other stands for the names beyond the bound.
const other = "_other"

// names bounds how many names there are.
type names struct {
	most int
	mu   sync.RWMutex
	seen map[string]struct{}
}

// known returns the name, or other if too many others came before it.
func (n *names) known(name string) string {
	n.mu.RLock()
	_, ok := n.seen[name]
	full := len(n.seen) >= n.most
	n.mu.RUnlock()
	switch {
	case ok:
		return name
	case full:
		return other
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.seen[name]; !ok && len(n.seen) >= n.most { // meanwhile
		return other
	}
	n.seen[name] = struct{}{}
	return name
}
