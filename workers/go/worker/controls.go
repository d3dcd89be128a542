package main

import "encoding/json"

const day = 86_400

// Controls are the orders of operators, folded from the stream `controls` (docs/protocol.md, section 9).
type Controls struct {
	Paused    map[string]bool
	Cancelled map[string]float64 // jid: when
	Quiet     bool               // true for good: a process that is told to be quiet or to stop never takes it back
	Stop      bool

	names  map[string]bool
	bootAt float64
	last   int64 // the offset of the last order that counted
}

// NewControls returns controls without any order. Orders may call this process by any of the names, or "*".
func NewControls(bootAt float64, names ...string) *Controls {
	controls := &Controls{Paused: map[string]bool{}, Cancelled: map[string]float64{}, bootAt: bootAt, last: -1}
	controls.names = map[string]bool{"*": true}
	for _, name := range names {
		controls.names[name] = true
	}
	return controls
}

// An order, as far as this worker understands it. Unknown members and types have no effect.
type order struct {
	Type, Op, Queue, Process, Jid, Nonce string
	At                                   float64
	After                                *int64
	Paused                               []string
	Orders, Cancelled                    []order
}

// entries are those of a message: one object, or an array. What cannot be read concerns nobody.
func entries(body []byte) (found []order) {
	var each []json.RawMessage
	if json.Unmarshal(body, &each) != nil {
		each = []json.RawMessage{body}
	}
	for _, raw := range each {
		var entry order
		if json.Unmarshal(raw, &entry) == nil {
			found = append(found, entry)
		}
	}
	return found
}

// Rewind is called when the stream is read anew, perhaps from another one of that name, in which offsets begin again.
func (c *Controls) Rewind() { c.last = -1 }

// Apply takes in the entry of a message at this offset.
func (c *Controls) Apply(entry order, offset int64, now float64) {
	switch entry.Type {
	case "control":
		c.last = offset
		c.apply(entry)
	case "controls_snapshot":
		// One whose writer had not yet read the last order would take that back; another one follows.
		if entry.After == nil || *entry.After >= c.last {
			c.replace(entry)
		}
	}
	for jid, at := range c.Cancelled {
		if at < now-day {
			delete(c.Cancelled, jid)
		}
	}
}

func (c *Controls) apply(entry order) {
	// An order to "*" must not stop a process that was started after it, perhaps because of it.
	mine := c.names[entry.Process] && c.bootAt < entry.At
	switch entry.Op {
	case "pause":
		c.Paused[entry.Queue] = true
	case "resume":
		delete(c.Paused, entry.Queue)
	case "cancel":
		c.Cancelled[entry.Jid] = entry.At
	case "quiet":
		c.Quiet = c.Quiet || mine
	case "stop":
		c.Stop = c.Stop || mine
	}
}

func (c *Controls) replace(entry order) {
	c.Paused, c.Cancelled = map[string]bool{}, map[string]float64{}
	for _, queue := range entry.Paused {
		c.Paused[queue] = true
	}
	for _, each := range entry.Cancelled {
		c.Cancelled[each.Jid] = each.At
	}
	for _, each := range entry.Orders {
		c.apply(each)
	}
}
