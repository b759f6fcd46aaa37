package columns

import (
	"fmt"

	"github.com/seed-30fe103d/throttler/pkg/lease"
)

// EncodeSpent returns the column spent of a call, encrypted as a whole: values of keys may
// be secrets.
func (c *Codec) EncodeSpent(id string, holds []lease.Hold) (string, error) {
	text, err := EncodeHolds(holds)
	return c.EncryptText(text, id, spentKind), err
}

func (c *Codec) decodeSpent(id, text, upstream string) ([]lease.Hold, error) {
	text, err := c.DecryptText(text, id, spentKind)
	if err != nil {
		return nil, err
	}
	return DecodeHolds(text, upstream)
}

// EncodeKey returns the column key of a hold.
func (c *Codec) EncodeKey(h lease.Hold) string {
	return c.EncryptText(h.Key, fmt.Sprint(h.ID), keyKind)
}

// EncodeWhy returns the column reason of a hold.
func (c *Codec) EncodeWhy(h lease.Hold) string {
	return c.EncryptText(h.Reason, fmt.Sprint(h.ID), whyKind)
}

// EncodeWho returns the column of the person of a hold.
func (c *Codec) EncodeWho(h lease.Hold) string {
	return c.EncryptText(h.Who, fmt.Sprint(h.ID), whoKind)
}

// DecryptHold decrypts the columns key, reason and who of a hold.
func (c *Codec) DecryptHold(h *lease.Hold) (err error) {
	if h.Key, err = c.DecryptText(h.Key, fmt.Sprint(h.ID), keyKind); err == nil {
		h.Reason, err = c.DecryptText(h.Reason, fmt.Sprint(h.ID), whyKind)
	}
	if err == nil {
		h.Who, err = c.DecryptText(h.Who, fmt.Sprint(h.ID), whoKind)
	}
	return err
}

// HoldSum is the sum of a row of quota. A row without since and reason has the sum that it
// had in earlier schemas, which knew neither.
func (c *Codec) HoldSum(h lease.Hold) int64 {
	s := c.NewSum()
	s.Ints(h.ID)
	s.Texts(h.Upstream, h.Limit, h.Key)
	s.bool(h.Every)
	s.Ints(int64(h.Permits), Micros(h.Back))
	s.bool(h.Paused)
	if since := Micros(h.Since); since != 0 || h.Reason != "" {
		s.Ints(since)
		s.Texts(h.Reason)
	}
	if h.Who != "" { // which schemas before 8 did not know
		s.Texts(h.Who)
	}
	return s.End()
}
