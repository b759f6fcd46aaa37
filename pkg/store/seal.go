package store

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"strconv"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// newSeal returns what seals bodies, nil without a key.
func newSeal(key []byte) (cipher.AEAD, error) {
	if key == nil {
		return nil, nil
	}
	if len(key) != 32 {
		return nil, fmt.Errorf("store: the sealing key has %d bytes, must have 32 (AES-256)", len(key))
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

var errSum = errors.New("a row does not match its checksum: the file is damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum is the checksum of a row. What it covers is written out in full, so no two
// rows look alike.
func sum(values ...any) int64 {
	text, crc := make([]byte, 0, 512), uint32(0)
	for _, v := range values {
		switch v := v.(type) {
		case []byte:
			text = append(strconv.AppendInt(text, int64(len(v)), 10), ':')
			crc = crc32.Update(crc32.Update(crc, castagnoli, text), castagnoli, v)
			text = text[:0]
		case string:
			text = append(strconv.AppendInt(text, int64(len(v)), 10), ':')
			text = append(text, v...)
		case int64:
			text = append(strconv.AppendInt(text, v, 10), ';')
		default:
			text = fmt.Appendf(text, "%v;", v)
		}
	}
	return int64(crc32.Update(crc, castagnoli, text))
}

// A content is what is kept apart of a call: a request or an answer.
type content struct {
	head, target string // method and target of a request
	status       int
	truncated    bool
	headers      string
	body         []byte
	sealed       []byte
	sum          int64
}

// The kinds of content are part of what is sealed: none passes for another.
const (
	aRequest = "request"
	anAnswer = "answer"
)

func (c *content) sumOf(id, kind string) int64 {
	return sum(id, kind, c.head, c.target, c.status, c.truncated, c.headers, c.body, c.sealed)
}

// A sealed content is the JSON of this.
type plain struct {
	Method, Target string
	Headers        string
	Body           []byte
}

// close seals the content, if there is a key, and sums it up.
func (d *DB) shut(c *content, id, kind string) error {
	if d.seal != nil {
		text, err := json.Marshal(plain{c.head, c.target, c.headers, c.body})
		if err != nil {
			return err
		}
		nonce := make([]byte, d.seal.NonceSize(), d.seal.NonceSize()+len(text)+d.seal.Overhead())
		rand.Read(nonce) // never fails
		c.sealed = d.seal.Seal(nonce, nonce, text, []byte(kind+" "+id))
		c.head, c.target, c.headers, c.body = "", "", "", nil
	}
	if c.body == nil {
		c.body = []byte{}
	}
	c.sum = c.sumOf(id, kind)
	return nil
}

// unseal checks the content and takes the seal off.
func (d *DB) unseal(c *content, id, kind string) error {
	if c.sumOf(id, kind) != c.sum {
		return fmt.Errorf("%s of call %s: %w", kind, id, errSum)
	}
	if c.sealed == nil {
		return nil
	}
	if d.seal == nil {
		return fmt.Errorf("%s of call %s is sealed, and there is no key", kind, id)
	}
	n := d.seal.NonceSize()
	if len(c.sealed) < n {
		return fmt.Errorf("%s of call %s: the seal is broken", kind, id)
	}
	text, err := d.seal.Open(nil, c.sealed[:n], c.sealed[n:], []byte(kind+" "+id))
	if err != nil {
		return fmt.Errorf("%s of call %s: the seal does not open: another key, or a damaged file", kind, id)
	}
	var p plain
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	c.head, c.target, c.headers, c.body = p.Method, p.Target, p.Headers, p.Body
	return nil
}

func encodeHeader(h http.Header) string {
	if len(h) == 0 {
		return "{}"
	}
	b, _ := json.Marshal(h) // texts only
	return string(b)
}

func (d *DB) sealRequest(id string, r *upstream.Request) (*content, error) {
	c := &content{head: r.Method, target: r.Target, headers: encodeHeader(r.Header), body: r.Body}
	return c, d.shut(c, id, aRequest)
}

func (d *DB) openRequest(id string, c *content) (*upstream.Request, error) {
	if err := d.unseal(c, id, aRequest); err != nil {
		return nil, err
	}
	r := &upstream.Request{Method: c.head, Target: c.target, Body: c.body}
	return r, json.Unmarshal([]byte(c.headers), &r.Header)
}

func (d *DB) sealAnswer(id string, r *scheduler.Response) (*content, error) {
	c := &content{status: r.Status, truncated: r.Truncated, headers: encodeHeader(r.Headers), body: r.Body}
	return c, d.shut(c, id, anAnswer)
}

func (d *DB) openAnswer(id string, c *content) (*scheduler.Response, error) {
	if err := d.unseal(c, id, anAnswer); err != nil {
		return nil, err
	}
	r := &scheduler.Response{Status: c.status, Truncated: c.truncated, Body: c.body}
	return r, json.Unmarshal([]byte(c.headers), &r.Headers)
}
