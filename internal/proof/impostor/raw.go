package impostor

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
)

// frame is a message that is passed on as it is.
type frame struct{ bytes []byte }

// raw is a codec that leaves frames as they are, and encodes the messages of a server's own services.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) ([]byte, error) {
	if f, ok := v.(*frame); ok {
		return f.bytes, nil
	}
	m, err := message(v)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(m)
}

func (raw) Unmarshal(data []byte, v any) error {
	if f, ok := v.(*frame); ok {
		f.bytes = append([]byte(nil), data...)
		return nil
	}
	m, err := message(v)
	if err != nil {
		return err
	}
	return proto.Unmarshal(data, m)
}

// message returns a message of etcd's API, which is of either version of protobuf's, as one of the second.
func message(v any) (proto.Message, error) {
	switch m := v.(type) {
	case proto.Message:
		return m, nil
	case protoadapt.MessageV1:
		return protoadapt.MessageV2Of(m), nil
	}
	return nil, fmt.Errorf("%T is no message", v)
}
