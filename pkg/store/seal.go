package store

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"

	"github.com/seed-30fe103d/throttler/pkg/lease"
)

// A seal is the protection that a file has by a key.
type seal uint8

const (
	inClear seal = iota
	loose        // of an older program: contents are encrypted, but rows are not bound to the key
	bound        // all contents are encrypted, and each row has a MAC
)

// sealOf returns the seal of a file, and lets the codec work with it. It fails if that was
// made with another key than the codec's.
func sealOf(db querier, c *codec) (seal, error) {
	var proof []byte
	err := db.QueryRowContext(context.Background(), "SELECT value FROM meta WHERE name = 'seal'").Scan(&proof)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return inClear, nil
	case err != nil:
		return inClear, err
	case c.aead == nil:
		return loose, errors.New("holds sealed calls; give the key with which they were sealed")
	case c.proves(proof, boundKind):
		c.bind()
		return bound, nil
	case c.proves(proof, proofKind):
		return loose, nil
	}
	return loose, errors.New("was sealed with another key; give that one")
}

// bindRows seals a file in which there is something to seal only if it is told to: its rows
// could have been written by anybody, and have the key's word from then on.
func bindRows(db *sql.DB, c *codec, told bool) error {
	needs, rows, err := needsSeal(db, c, told)
	if err != nil || !needs {
		return err
	}
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := reseal(tx, c); err != nil {
		return fmt.Errorf("is not sealed: %w", err)
	}
	if err := tx.Commit(); err != nil || !rows {
		return err
	}
	_, err = db.Exec("VACUUM") // free space has rows as they were
	return err
}

// needsSeal reports whether a file is still to be sealed, and whether it has rows. It fails
// for one that has, unless told: see bindRows.
func needsSeal(db *sql.DB, c *codec, told bool) (needs, rows bool, err error) {
	s, err := sealOf(db, c)
	if err != nil || c.aead == nil || s == bound {
		return false, false, err
	}
	if err := db.QueryRow("SELECT EXISTS (SELECT 1 FROM calls) OR EXISTS (SELECT 1 FROM quota) OR EXISTS (SELECT 1 FROM audit)").Scan(&rows); err != nil {
		return false, false, err
	}
	if rows && !told {
		return false, false, errors.New("was written without a seal_key, or by an older program, whose seal did not tell rows that others have written; if only you could write the file, seal it once with: throttler store seal (Options.Seal)")
	}
	return true, rows, nil
}

// A resealing writes all rows of a file anew, for a codec that binds them.
type resealing struct {
	context.Context
	*sql.Tx
	old, codec *codec
}

func reseal(tx *sql.Tx, c *codec) error {
	s := &resealing{context.Background(), tx, &codec{aead: c.aead}, c}
	c.bind()
	if err := errors.Join(s.flights(), s.calls(), s.quota(), s.identities(), s.audit()); err != nil {
		return err
	}
	proof, err := c.proof()
	if err != nil {
		return err
	}
	// The terms have a key from now on: Open makes the blocks anew.
	if _, err := tx.Exec("DELETE FROM blocks; DELETE FROM terms; DELETE FROM strays; DELETE FROM meta WHERE name = 'indexed'"); err != nil {
		return err
	}
	_, err = tx.Exec("INSERT OR REPLACE INTO meta VALUES ('seal', ?)", proof)
	return err
}

// row sets the columns attempts, spent, facts and sum of a row as the new codec has them.
func (s *resealing) row(r *row) error {
	c, err := r.call(s.old)
	if err != nil {
		return err
	}
	if r.attempts, err = encodeAttempts(s.codec, c); err != nil {
		return err
	}
	if r.spent, err = s.codec.encodeSpent(r.id, c.Outstanding); err != nil {
		return err
	}
	r.facts, r.sum = s.codec.encryptText(r.facts, r.id, factsKind), r.checksum(s.codec) // the old codec encrypts no text
	return nil
}

func (s *resealing) calls() error {
	for seq := int64(0); ; {
		rows, err := s.QueryContext(s, "SELECT "+columns+" FROM calls WHERE seq > ? ORDER BY seq LIMIT 500", seq)
		if err != nil {
			return err
		}
		page, err := scan(rows)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, r := range page {
			err := s.row(r)
			if err == nil {
				_, err = s.Exec("UPDATE calls SET attempts = ?, spent = ?, sum = ?, facts = ? WHERE seq = ?", r.attempts, r.spent, r.sum, r.facts, r.seq)
			}
			if err = errors.Join(err, s.request(r), s.response(r)); err != nil {
				return err
			}
			seq = r.seq
		}
	}
}

func (s *resealing) request(r *row) error {
	b, err := r.request(s, s.Tx)
	if b == nil || err != nil {
		return err
	}
	if err := errors.Join(s.old.decode(b, r.id, requestKind), s.codec.encode(b, r.id, requestKind)); err != nil {
		return err
	}
	moved, err := s.Exec("UPDATE bodies SET body = ?, sealed = ? WHERE seq = ?", b.body, b.encrypted, r.seq)
	if err != nil {
		return err
	}
	body, encrypted := b.body, b.encrypted
	if n, err := moved.RowsAffected(); err != nil {
		return err
	} else if n > 0 {
		body, encrypted = nil, nil
	}
	_, err = s.Exec("UPDATE calls SET method = ?, target = ?, headers = ?, body = ?, sealed = ?, request_sum = ? WHERE seq = ?",
		b.method, b.target, b.headers, body, encrypted, b.sum, r.seq)
	return err
}

func (s *resealing) response(r *row) error {
	a, err := r.response(s, s.Tx)
	if a == nil || err != nil {
		return err
	}
	if err := errors.Join(s.old.decode(a, r.id, responseKind), s.codec.encode(a, r.id, responseKind)); err != nil {
		return err
	}
	_, err = s.Exec("UPDATE calls SET answer_headers = ?, answer = ?, answer_sealed = ?, answer_sum = ? WHERE seq = ?", a.headers, a.body, a.encrypted, a.sum, r.seq)
	return err
}

func (s *resealing) flights() error {
	rows, err := s.QueryContext(s, "SELECT "+columns+" FROM current WHERE seq IN (SELECT seq FROM flights)")
	if err != nil {
		return err
	}
	all, err := scan(rows)
	if err != nil {
		return err
	}
	for _, r := range all {
		if err := s.row(r); err != nil {
			return err
		}
		if _, err := s.Exec("UPDATE flights SET attempts = ?, spent = ?, sum = ? WHERE seq = ?", r.attempts, r.spent, r.sum, r.seq); err != nil {
			return err
		}
	}
	return nil
}

func (s *resealing) identities() error {
	rows, err := s.QueryContext(s, "SELECT key FROM keys WHERE ended_by IS NOT NULL")
	if err != nil {
		return err
	}
	defer rows.Close()
	var all [][]byte
	for rows.Next() {
		var hash []byte
		if err := rows.Scan(&hash); err != nil {
			return err
		}
		all = append(all, hash)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for _, hash := range all {
		if _, err := s.Exec("UPDATE keys SET key = ? WHERE key = ?", s.codec.blind(hash), hash); err != nil {
			return err
		}
	}
	return nil
}

func (s *resealing) quota() error {
	rows, err := s.QueryContext(s, selectHolds)
	if err != nil {
		return err
	}
	all, err := scanHolds(rows, s.old)
	if err != nil {
		return err
	}
	for _, h := range all {
		if _, err := s.Exec("UPDATE quota SET key = ?, reason = ?, who = ?, sum = ? WHERE id = ?", s.codec.encodeKey(h), s.codec.encodeWhy(h), s.codec.encodeWho(h), s.codec.holdSum(h), h.ID); err != nil {
			return err
		}
	}
	return nil
}

// encodeSpent returns the column spent of a call, encrypted as a whole: values of keys may
// be secrets.
func (c *codec) encodeSpent(id string, holds []lease.Hold) (string, error) {
	text, err := encodeHolds(holds)
	return c.encryptText(text, id, spentKind), err
}

func (c *codec) decodeSpent(id, text, upstream string) ([]lease.Hold, error) {
	text, err := c.decryptText(text, id, spentKind)
	if err != nil {
		return nil, err
	}
	return decodeHolds(text, upstream)
}

// encodeKey returns the column key of a hold.
func (c *codec) encodeKey(h lease.Hold) string {
	return c.encryptText(h.Key, fmt.Sprint(h.ID), keyKind)
}

// encodeWhy returns the column reason of a hold.
func (c *codec) encodeWhy(h lease.Hold) string {
	return c.encryptText(h.Reason, fmt.Sprint(h.ID), whyKind)
}

// encodeWho returns the column who of a hold.
func (c *codec) encodeWho(h lease.Hold) string {
	return c.encryptText(h.Who, fmt.Sprint(h.ID), whoKind)
}

// decryptHold decrypts the columns key, reason and who of a hold.
func (c *codec) decryptHold(h *lease.Hold) (err error) {
	if h.Key, err = c.decryptText(h.Key, fmt.Sprint(h.ID), keyKind); err == nil {
		h.Reason, err = c.decryptText(h.Reason, fmt.Sprint(h.ID), whyKind)
	}
	if err == nil {
		h.Who, err = c.decryptText(h.Who, fmt.Sprint(h.ID), whoKind)
	}
	return err
}

// holdSum is the sum of a row of quota. A row without since and reason has the sum that it
// had in earlier schemas, which knew neither.
func (c *codec) holdSum(h lease.Hold) int64 {
	s := c.newSum()
	s.ints(h.ID)
	s.texts(h.Upstream, h.Limit, h.Key)
	s.bool(h.Every)
	s.ints(int64(h.Permits), micros(h.Back))
	s.bool(h.Paused)
	if since := micros(h.Since); since != 0 || h.Reason != "" {
		s.ints(since)
		s.texts(h.Reason)
	}
	if h.Who != "" { // which schemas before 8 did not know
		s.texts(h.Who)
	}
	return s.end()
}

// blind returns the hash of an identity as a file has it: in a sealed one only the key can
// tell whether a guess is right.
func (c *codec) blind(hash []byte) []byte {
	if c.macs == nil {
		return hash
	}
	h := hmac.New(sha256.New, c.blinding)
	h.Write(hash)
	return h.Sum(nil)
}

// term returns the hash of a text.
func (c *codec) term(text string) term {
	if c.terms == nil {
		h := sha256.Sum256([]byte(text))
		return term(binary.BigEndian.Uint64(h[:]))
	}
	h := c.terms.Get().(hash.Hash)
	defer c.terms.Put(h)
	h.Reset()
	h.Write([]byte(text))
	return term(binary.BigEndian.Uint64(h.Sum(nil)))
}
