package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/seed-30fe103d/throttler/internal/columns"
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
func sealOf(db querier, c *columns.Codec) (seal, error) {
	var proof []byte
	err := db.QueryRowContext(context.Background(), "SELECT value FROM meta WHERE name = 'seal'").Scan(&proof)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return inClear, nil
	case err != nil:
		return inClear, err
	case !c.HasKey():
		return loose, errors.New("holds sealed calls; give the key with which they were sealed")
	case c.Proves(proof, columns.BoundKind):
		c.Bind()
		return bound, nil
	case c.Proves(proof, columns.ProofKind):
		return loose, nil
	}
	return loose, errors.New("was sealed with another key; give that one")
}

// bindRows seals a file in which there is something to seal only if it is told to: its rows
// could have been written by anybody, and have the key's word from then on.
func bindRows(db *sql.DB, c *columns.Codec, told bool) error {
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
func needsSeal(db *sql.DB, c *columns.Codec, told bool) (needs, rows bool, err error) {
	s, err := sealOf(db, c)
	if err != nil || !c.HasKey() || s == bound {
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
	old, codec *columns.Codec
}

func reseal(tx *sql.Tx, c *columns.Codec) error {
	s := &resealing{context.Background(), tx, c.Loose(), c}
	c.Bind()
	if err := errors.Join(s.flights(), s.calls(), s.quota(), s.identities(), s.audit()); err != nil {
		return err
	}
	proof, err := c.Proof()
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
func (s *resealing) row(r *columns.Row) error {
	c, err := r.Call(s.old)
	if err != nil {
		return err
	}
	if r.Attempts, err = columns.EncodeAttempts(s.codec, c); err != nil {
		return err
	}
	if r.Spent, err = s.codec.EncodeSpent(r.ID, c.Outstanding); err != nil {
		return err
	}
	r.Facts, r.Sum = s.codec.EncryptText(r.Facts, r.ID, columns.FactsKind), r.Checksum(s.codec) // the old codec encrypts no text
	return nil
}

func (s *resealing) calls() error {
	for seq := int64(0); ; {
		rows, err := s.QueryContext(s, "SELECT "+columns.OfCall+" FROM calls WHERE seq > ? ORDER BY seq LIMIT 500", seq)
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
				_, err = s.Exec("UPDATE calls SET attempts = ?, spent = ?, sum = ?, facts = ? WHERE seq = ?", r.Attempts, r.Spent, r.Sum, r.Facts, r.Seq)
			}
			if err = errors.Join(err, s.request(r), s.response(r)); err != nil {
				return err
			}
			seq = r.Seq
		}
	}
}

func (s *resealing) request(r *columns.Row) error {
	b, err := requestOf(s, s.Tx, r)
	if b == nil || err != nil {
		return err
	}
	if err := errors.Join(s.old.Decode(b, r.ID, columns.RequestKind), s.codec.Encode(b, r.ID, columns.RequestKind)); err != nil {
		return err
	}
	moved, err := s.Exec("UPDATE bodies SET body = ?, sealed = ? WHERE seq = ?", b.Body, b.Encrypted, r.Seq)
	if err != nil {
		return err
	}
	body, encrypted := b.Body, b.Encrypted
	if n, err := moved.RowsAffected(); err != nil {
		return err
	} else if n > 0 {
		body, encrypted = nil, nil
	}
	_, err = s.Exec("UPDATE calls SET method = ?, target = ?, headers = ?, body = ?, sealed = ?, request_sum = ? WHERE seq = ?",
		b.Method, b.Target, b.Headers, body, encrypted, b.Sum, r.Seq)
	return err
}

func (s *resealing) response(r *columns.Row) error {
	a, err := responseOf(s, s.Tx, r)
	if a == nil || err != nil {
		return err
	}
	if err := errors.Join(s.old.Decode(a, r.ID, columns.ResponseKind), s.codec.Encode(a, r.ID, columns.ResponseKind)); err != nil {
		return err
	}
	_, err = s.Exec("UPDATE calls SET answer_headers = ?, answer = ?, answer_sealed = ?, answer_sum = ? WHERE seq = ?", a.Headers, a.Body, a.Encrypted, a.Sum, r.Seq)
	return err
}

func (s *resealing) flights() error {
	rows, err := s.QueryContext(s, "SELECT "+columns.OfCall+" FROM current WHERE seq IN (SELECT seq FROM flights)")
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
		if _, err := s.Exec("UPDATE flights SET attempts = ?, spent = ?, sum = ? WHERE seq = ?", r.Attempts, r.Spent, r.Sum, r.Seq); err != nil {
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
		if _, err := s.Exec("UPDATE keys SET key = ? WHERE key = ?", s.codec.Blind(hash), hash); err != nil {
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
		if _, err := s.Exec("UPDATE quota SET key = ?, reason = ?, who = ?, sum = ? WHERE id = ?", s.codec.EncodeKey(h), s.codec.EncodeWhy(h), s.codec.EncodeWho(h), s.codec.HoldSum(h), h.ID); err != nil {
			return err
		}
	}
	return nil
}
