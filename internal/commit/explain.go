package commit

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
)

// deniedError adds what an operator has to change so that etcd allows a request.
type deniedError struct {
	error
	known  error // by which Denied knows it
	remedy string
}

func (e *deniedError) Error() string { return e.error.Error() + ": " + e.remedy }

func (e *deniedError) Unwrap() []error { return []error{e.error, e.known} }

// Explain adds to an error for which Denied holds what an operator has to change, once. All
// keys of the caller begin with prefix. Other errors are returned as they are.
func Explain(err error, prefix string) error {
	if _, done := errors.AsType[*deniedError](err); done || err == nil || !Denied(err) {
		return err
	}
	known, _ := asEtcd(err)
	if known.Code() != codes.PermissionDenied {
		return &deniedError{err, known, "set Username and Password in the clientv3.Config of this client"}
	}
	return &deniedError{err, known, fmt.Sprintf("the role of the client's user needs read and write permission for all keys with the prefix %s: etcdctl role grant-permission ROLE readwrite --prefix %s", prefix, prefix)}
}
