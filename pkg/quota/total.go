package quota

// totalSteps is how many instants of return a total tells apart within a window that slides: a
// permit may count as out for a thousandth of the window too long.
const totalSteps = 1024

// A total is the permits of all keys of a limit that are out. It is bounded however many there are.
type total struct {
	inFlight int
	cooling  cooling
}

// add adds permits that come back at an instant of the window's clock.
func (t *total) add(now int64, w Window, back int64, permits int32) {
	step := int64(1)
	if w.Slides() {
		step = max(step, int64(w.Length())/totalSteps)
	}
	t.cooling.at(now) // the room of those that are back is used again
	t.cooling.add(batch{at: (back + step - 1) / step * step, n: permits})
}
