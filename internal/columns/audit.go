package columns

import (
	"fmt"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// EncodeAudit returns a record as its columns have it.
func EncodeAudit(c *Codec, r scheduler.AuditRecord) scheduler.AuditRecord {
	for name, text := range secretTexts(&r) {
		*text = c.EncryptText(*text, fmt.Sprint(r.Seq, " ", name), auditKind)
	}
	return r
}

func DecodeAudit(c *Codec, r *scheduler.AuditRecord) (err error) {
	for name, text := range secretTexts(r) {
		if *text, err = c.DecryptText(*text, fmt.Sprint(r.Seq, " ", name), auditKind); err != nil {
			return err
		}
	}
	return nil
}

// secretTexts are the texts of a record that are encrypted in a sealed file, by column.
func secretTexts(r *scheduler.AuditRecord) map[string]*string {
	return map[string]*string{"key": &r.Key, "before": &r.Before, "after": &r.After, "reason": &r.Reason}
}

// AuditSum is the sum of a row of audit, over its texts in the clear.
func AuditSum(c *Codec, r scheduler.AuditRecord) int64 {
	s := c.NewSum()
	s.Ints(r.Seq, Micros(r.At))
	s.Texts(r.Actor, r.Role, r.Via, r.Action, r.Upstream, r.Call, r.Limit, r.Key, r.Before, r.After, r.Reason)
	return s.End()
}
