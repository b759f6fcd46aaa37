// Package heap holds a binary heap whose items know their place in it, so that one
// can be removed or put in order again in O(log n).
//
//	h := heap.New(func(j *job) *int { return &j.place }, func(a, b *job) bool { return a.due < b.due })
//	h.Add(j)
//	j.due = later
//	h.Fix(j)
//
// It is container/heap with types, and one owner.
package heap

import "container/heap"

// A Heap holds items in the order of a less function. The zero Heap is of no use; see
// [New]. Its methods must not be called concurrently.
type Heap[T any] struct {
	Items []T // the first is the least; the others are in no order
	place func(T) *int
	less  func(a, b T) bool
}

// New returns an empty heap. Place returns where an item keeps its place: 0 while it
// is in no heap.
func New[T any](place func(T) *int, less func(a, b T) bool) Heap[T] {
	return Heap[T]{place: place, less: less}
}

// Size returns the number of items.
func (h *Heap[T]) Size() int { return len(h.Items) }

// First returns the least item. It panics if the heap is empty.
func (h *Heap[T]) First() T { return h.Items[0] }

// Add adds an item that is in no heap.
func (h *Heap[T]) Add(x T) { heap.Push((*order[T])(h), x) }

// Remove removes an item of the heap.
func (h *Heap[T]) Remove(x T) { heap.Remove((*order[T])(h), *h.place(x)-1) }

// Pop removes and returns the least item.
func (h *Heap[T]) Pop() T { return heap.Pop((*order[T])(h)).(T) }

// Fix puts an item in order whose rank has changed.
func (h *Heap[T]) Fix(x T) { heap.Fix((*order[T])(h), *h.place(x)-1) }

// Contains reports whether an item is in the heap.
func (h *Heap[T]) Contains(x T) bool { return *h.place(x) > 0 }

// order is a Heap as container/heap sees it.
type order[T any] Heap[T]

func (o *order[T]) Len() int           { return len(o.Items) }
func (o *order[T]) Less(i, j int) bool { return o.less(o.Items[i], o.Items[j]) }
func (o *order[T]) Swap(i, j int) {
	o.Items[i], o.Items[j] = o.Items[j], o.Items[i]
	*o.place(o.Items[i]), *o.place(o.Items[j]) = i+1, j+1
}

func (o *order[T]) Push(x any) {
	o.Items = append(o.Items, x.(T))
	*o.place(x.(T)) = len(o.Items)
}

func (o *order[T]) Pop() any {
	last := len(o.Items) - 1
	x := o.Items[last]
	var zero T
	o.Items[last] = zero
	o.Items = o.Items[:last]
	*o.place(x) = 0
	return x
}
