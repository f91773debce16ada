package queue

import "container/list"

// turn is one level of the round robin: the queue shares its time between
// peers, a peer between processes, and a process keeps its items in the order
// in which they came. A child is in its parent's order while it has items waiting or is
// being served; then it leaves both order and map, so that callers that have gone use
// no memory.
type turn struct {
	parent   *turn
	name     string
	children map[string]*turn
	order    list.List     // of *turn, or of *item in a process
	place    *list.Element // in the parent's order
	waiting  int           // items in this turn and below
	serving  bool          // one of its items runs now; the turn is then first in the parent's order
}

func newTurn(parent *turn, name string) *turn {
	t := &turn{parent: parent, name: name}
	t.order.Init()
	return t
}

// child returns the child of that name. It adds a missing child, last in order. The
// caller adds an item to it or to a child of it.
func (t *turn) child(name string) *turn {
	if c, ok := t.children[name]; ok {
		return c
	}
	if t.children == nil {
		t.children = make(map[string]*turn)
	}
	c := newTurn(t, name)
	c.place = t.order.PushBack(c)
	t.children[name] = c
	return c
}

// add puts an item last in a process.
func (t *turn) add(it *item) *list.Element {
	for up := t; up != nil; up = up.parent {
		up.waiting++
	}
	return t.order.PushBack(it)
}

// remove takes an item out of a process, and the process and its peer out of the order
// when they have no items left.
func (t *turn) remove(place *list.Element) {
	t.order.Remove(place)
	for up := t; up != nil; up = up.parent {
		up.waiting--
		up.leaveIfDone()
	}
}

func (t *turn) leaveIfDone() {
	if t.parent == nil || t.waiting > 0 || t.serving {
		return
	}
	t.parent.order.Remove(t.place)
	delete(t.parent.children, t.name)
}

// take removes and returns the next item, nil when none waits. The peer and the process
// of the item stay first in their orders until [turn.end]: a caller that arrives
// meanwhile is then served before them, so that a caller with one request waits two
// turns and not three.
func (t *turn) take() *item {
	if t.waiting == 0 {
		return nil
	}
	for {
		t.serving = true
		switch first := t.order.Front().Value.(type) {
		case *turn:
			t = first
		case *item:
			t.remove(first.place)
			first.place = nil
			return first
		}
	}
}

// end finishes the turn that take began: the process and its peer go last.
func (t *turn) end() {
	for up := t; up.parent != nil; up = up.parent {
		up.serving = false
		up.parent.order.MoveToBack(up.place)
		up.leaveIfDone()
	}
}

// items returns everything that waits in t and below.
func (t *turn) items() []*item {
	var all []*item
	for e := t.order.Front(); e != nil; e = e.Next() {
		switch v := e.Value.(type) {
		case *turn:
			all = append(all, v.items()...)
		case *item:
			all = append(all, v)
		}
	}
	return all
}
