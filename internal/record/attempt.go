package record

import (
	"bytes"
	"encoding/json"
	"slices"
)

// Attempt is the value of an idempotency key's record: its holder, and later its outcome. It
// is one line of JSON; after the line comes the result, or the steps of an attempt that has not
// ended.
type Attempt struct {
	header
	State   string `json:"state"`
	Number  int    `json:"attempt"`
	Nonce   string `json:"nonce"` // unique together with Lease
	Lease   int64  `json:"lease"` // of the session
	Owner   string `json:"owner,omitempty"`
	Session string `json:"session,omitempty"` // the ID of the session, as its presence key has it
	Scope   string `json:"scope,omitempty"`
	Op      string `json:"op,omitempty"`
	Via     string `json:"via,omitempty"`              // the entry of that attempt: do, http, grpc; empty for the program's own
	Returns string `json:"returns,omitempty"`          // the type of the message that the call returns
	Note    string `json:"note,omitempty"`             // for operators
	Print   []byte `json:"fingerprint"`                // fingerprint of the payload
	Also    []byte `json:"also_fingerprint,omitempty"` // of what is compared besides, where both have it
	Refuse  bool   `json:"refuse,omitempty"`
	StartMS int64  `json:"start"` // by the holder's wall clock: for people only
	EndMS   int64  `json:"end,omitempty"`
	Token   int64  `json:"token,omitempty"`   // of the attempt that ended it
	Codec   string `json:"codec,omitempty"`   // of the result; of a working attempt, the one that its store has
	Size    int    `json:"size,omitempty"`    // of the result as it is stored
	Parts   int    `json:"parts,omitempty"`   // it is stored in that many keys of its own
	Sum     []byte `json:"sum,omitempty"`     // of a result in parts
	Omitted bool   `json:"omitted,omitempty"` // it was too big, or could not be encoded
	Error   string `json:"error,omitempty"`   // of a remembered failure
	By      string `json:"by,omitempty"`      // the operator who resolved it
	Was     []Word `json:"was,omitempty"`     // what operators have said before, oldest first

	Body []byte `json:"-"`
}

// The states of a record. The effect of a lost attempt is unknown; a working one is lost as well when the presence
// key of the session on Lease is gone.
const (
	AttemptWorking  = "working"
	AttemptLost     = "lost"     // given up while its session lived, with the steps that were done
	AttemptReleased = "released" // with the steps that were done
	AttemptDone     = "done"
	AttemptFailed   = "failed"
)

// Word is what an operator has said about a request, and what was said or done since has replaced.
type Word struct {
	State string `json:"state"`
	By    string `json:"by"`
	AtMS  int64  `json:"at"`
	Error string `json:"error,omitempty"` // the beginning of a failure's text
}

// The bounds of Was: so many words are kept, the latest, each with so many bytes of its operator and its text.
const (
	MaxWas  = 6
	wasText = 96
)

// Replaced returns r with the word of its operator among those that were replaced. Without one, it returns r as it is.
func (r Attempt) Replaced() Attempt {
	if r.By == "" {
		return r
	}
	was := append(slices.Clip(r.Was), Word{State: r.State, By: cut(r.By, wasText), AtMS: r.EndMS, Error: cut(r.Error, wasText)})
	r.Was, r.By = was[max(0, len(was)-MaxWas):], ""
	return r
}

// Step is one recovery point of an attempt.
type Step struct {
	Name  string `json:"name"`
	Codec string `json:"codec,omitempty"`
	Value []byte `json:"value"`
}

// EncodeSteps writes the body of an attempt that has not ended.
func EncodeSteps(steps []Step) []byte {
	if len(steps) == 0 {
		return nil
	}
	return []byte(encode(steps))
}

// maxParts bounds the parts of a result that DecodeAttempt accepts.
const maxParts = 1 << 12

// DecodeAttempt reads an Attempt. Its Body is part of b.
func DecodeAttempt(b []byte) (r Attempt, ok bool) {
	head, body, found := bytes.Cut(b, []byte{'\n'})
	r, ok = decode[Attempt](head)
	if !found || !ok || r.Number < 1 || r.Size < 0 || r.Parts < 0 || r.Parts > maxParts {
		return Attempt{}, false
	}
	switch r.State {
	case AttemptWorking, AttemptLost, AttemptReleased:
	case AttemptDone, AttemptFailed:
		if r.Parts == 0 && r.Size != len(body) {
			return Attempt{}, false
		}
	default:
		return Attempt{}, false
	}
	r.Body = body
	return r, true
}

// DecodeSteps reads the steps of an attempt. A body that cannot be read has none.
func DecodeSteps(b []byte) (steps []Step, ok bool) {
	if len(b) == 0 {
		return nil, true
	}
	return steps, json.Unmarshal(b, &steps) == nil
}

// StepNames reads the names of the steps of an attempt. A body that cannot be read has none.
func StepNames(b []byte) (names []string) {
	var steps []struct {
		Name string `json:"name"`
	}
	if len(b) == 0 || json.Unmarshal(b, &steps) != nil {
		return nil
	}
	for _, s := range steps {
		names = append(names, s.Name)
	}
	return names
}
