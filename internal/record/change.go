package record

// Change is the value of a key that says what an operator has changed. It is for people only.
type Change struct {
	header
	AtMS   int64  `json:"at"`
	By     string `json:"by"`
	Verb   string `json:"verb"`
	Name   string `json:"name"`
	Target string `json:"target,omitempty"` // a token or a reference; of an action on many, how many and which
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Open is set before the change is made: it stays if the process ends meanwhile.
	Open   bool   `json:"open,omitempty"`
	Failed string `json:"failed,omitempty"` // why it was not made, or is not known to be made
	// Queues are those of the targets of an action on many, as far as they fit.
	Queues []string `json:"queues,omitempty"`
}

// Encode writes a record. Texts that are too long are cut.
func (r Change) Encode() string {
	r.Version = version
	for _, text := range []*string{&r.By, &r.Name, &r.Target, &r.Before, &r.After, &r.Reason, &r.Failed} {
		*text = Text(*text)
	}
	size := 0
	for i, name := range r.Queues {
		if size += len(name); size > MaxText {
			r.Queues = r.Queues[:i]
			break
		}
	}
	return encode(r)
}

// DecodeChange reads a Change.
func DecodeChange(b []byte) (r Change, ok bool) { return decode[Change](b) }
