package scheduler

import (
	"slices"
	"strings"
)

// idChunk is the greatest number of ids of a chunk: so much is moved to remove one.
const idChunk = 512

// An idList has ids in order, in chunks none of which is empty. Nearly all are added at its end,
// and removed at its beginning. Each change takes a bounded time, whichever its length.
type idList struct{ chunks [][]string }

// locate returns the place of the first id that is not smaller than one.
func (l *idList) locate(id string) (chunk, at int) {
	chunk = l.chunkOf(id)
	if chunk == len(l.chunks) {
		return chunk, 0
	}
	at, _ = slices.BinarySearch(l.chunks[chunk], id)
	return chunk, at
}

// chunkOf returns the last chunk that begins with an id or a smaller one, the first one if there is none.
func (l *idList) chunkOf(id string) int {
	if len(l.chunks) < 2 || id < l.chunks[1][0] {
		return 0
	}
	if last := len(l.chunks) - 1; id >= l.chunks[last][0] {
		return last
	}
	i, found := slices.BinarySearchFunc(l.chunks, id, func(c []string, id string) int { return strings.Compare(c[0], id) })
	if !found {
		i--
	}
	return i
}

func (l *idList) add(id string) {
	if len(l.chunks) == 0 {
		l.chunks = append(l.chunks, nil)
	}
	i, at := l.locate(id)
	c := l.chunks[i]
	if len(c) < idChunk {
		l.chunks[i] = slices.Insert(c, at, id)
		return
	}
	if at == len(c) && i == len(l.chunks)-1 {
		l.chunks = append(l.chunks, append(make([]string, 0, idChunk), id))
		return
	}
	l.chunks = slices.Insert(l.chunks, i+1, slices.Clone(c[idChunk/2:]))
	l.chunks[i] = c[: idChunk/2 : idChunk/2]
	l.add(id)
}

func (l *idList) remove(id string) {
	i, at := l.locate(id)
	if i == len(l.chunks) || at == len(l.chunks[i]) || l.chunks[i][at] != id {
		return
	}
	c := l.chunks[i]
	if c[at] = ""; at == 0 {
		c = c[1:]
	} else {
		c = slices.Delete(c, at, at+1)
	}
	if len(c) > 0 && len(c) < cap(c)/4 { // a few ids keep no room of many
		c = slices.Clone(c)
	}
	if l.chunks[i] = c; len(c) == 0 {
		l.chunks = slices.Delete(l.chunks, i, i+1)
	}
}

// page returns a page of the ids that come after one, at most so many; all of them, if that is empty.
func (l *idList) page(after string, oldest bool, most int) []string {
	ids := make([]string, 0, most)
	if oldest {
		i, at := l.locate(after)
		for ; i < len(l.chunks) && len(ids) < most; i, at = i+1, 0 {
			for _, id := range l.chunks[i][at:] {
				if id != after && len(ids) < most {
					ids = append(ids, id)
				}
			}
		}
		return ids
	}
	i, at := len(l.chunks), 0
	if after != "" {
		i, at = l.locate(after)
	}
	for ; i >= 0 && len(ids) < most; i-- {
		if i < len(l.chunks) {
			for _, id := range slices.Backward(l.chunks[i][:at]) {
				if len(ids) < most {
					ids = append(ids, id)
				}
			}
		}
		if i > 0 {
			at = len(l.chunks[i-1])
		}
	}
	return ids
}
