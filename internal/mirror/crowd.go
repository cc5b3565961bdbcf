package mirror

// Asked returns whether a request waits in the queue, or may, see rank.Queue.Asked. listed is false
// if the view has not seen the queue yet. Its cost does not depend on the length of the queue. Changed
// is closed at the next change.
func (m *Mirror) Asked() (asked, listed bool, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.queue.Asked(), m.listed > 0, m.changed
}
