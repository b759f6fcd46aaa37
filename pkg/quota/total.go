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
	if step := int64(w.Length()) / totalSteps; w.Slides() && step > 1 {
		back += step - 1 - (back-1)%step
	}
	t.cooling.at(now) // the room of those that are back is used again
	t.cooling.add(batch{at: back, n: permits})
}
