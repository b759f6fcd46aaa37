package store

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-30fe103d/throttler/internal/columns"
)

// A term is in one of so many buckets, by its first bits.
const buckets = 64

func bucket(t columns.Term) int64 { return int64(t >> 58) }

// markOf is the part of a term that a chunk has. Two terms with one mark cost a look at a row.
func markOf(t columns.Term) uint32 { return uint32(t >> 26) }

// A located call is one that a block has.
type located struct {
	seq int64
	id  string
}

// A posting is the term of a call, given by its number in a block.
type posting struct {
	term columns.Term
	call uint16
}

// postingSize is that of a posting in a chunk, bytes.
const postingSize = 6

// A block is a stretch of calls with their terms, in memory or in the file.
type block struct {
	number      int64 // in the file; 0: in memory
	first, last int64 // the lowest and the highest seq
	low, high   string
}

// sorted orders the calls of a block by their ids, and numbers them so in its postings.
func sorted(calls []located, postings []posting) {
	order := make([]uint16, len(calls))
	for i := range order {
		order[i] = uint16(i)
	}
	slices.SortFunc(order, func(a, b uint16) int { return strings.Compare(calls[a].id, calls[b].id) })
	place, before := make([]uint16, len(calls)), slices.Clone(calls)
	for i, was := range order {
		place[was], calls[i] = uint16(i), before[was]
	}
	for i := range postings {
		postings[i].call = place[postings[i].call]
	}
	slices.SortFunc(postings, func(a, b posting) int { return cmp.Or(cmp.Compare(a.term, b.term), cmp.Compare(a.call, b.call)) })
}

// outline returns the block of sorted calls, as far as memory keeps it.
func outline(number int64, calls []located) block {
	b := block{number: number, first: calls[0].seq, last: calls[0].seq, low: calls[0].id, high: calls[len(calls)-1].id}
	for _, c := range calls {
		b.first, b.last = min(b.first, c.seq), max(b.last, c.seq)
	}
	return b
}

// chunks returns the chunks of sorted postings by their buckets, nil for none.
func chunks(postings []posting) (all [buckets][]byte) {
	for _, p := range postings {
		b := bucket(p.term)
		all[b] = binary.BigEndian.AppendUint32(all[b], markOf(p.term))
		all[b] = binary.BigEndian.AppendUint16(all[b], p.call)
	}
	return all
}

// find returns the numbers of the calls that a chunk has under a term, in order.
func find(chunk []byte, t columns.Term) (calls []uint16) {
	n := len(chunk) / postingSize
	at := func(i int) []byte { return chunk[i*postingSize:] }
	low, high := 0, n
	for low < high {
		if mid := (low + high) / 2; binary.BigEndian.Uint32(at(mid)) < markOf(t) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	for i := low; i < n && binary.BigEndian.Uint32(at(i)) == markOf(t); i++ {
		calls = append(calls, binary.BigEndian.Uint16(at(i)[4:]))
	}
	return calls
}

// encodeSeqs returns the column calls of a block.
func encodeSeqs(calls []located) []byte {
	b, before := make([]byte, 0, 2*len(calls)), int64(0)
	for _, c := range calls {
		b = binary.AppendVarint(b, c.seq-before)
		before = c.seq
	}
	return b
}

func decodeSeqs(b []byte) (seqs []int64, err error) {
	for before := int64(0); len(b) > 0; {
		difference, n := binary.Varint(b)
		if n <= 0 {
			return nil, fmt.Errorf("calls of a block: %w", columns.ErrChecksum)
		}
		before += difference
		seqs, b = append(seqs, before), b[n:]
	}
	return seqs, nil
}
