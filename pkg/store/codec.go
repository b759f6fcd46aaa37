package store

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A codec turns requests and responses into columns and back. It encrypts them if it
// has a key, and it checks their checksums.
type codec struct {
	key  []byte
	aead cipher.AEAD // nil: in the clear
	macs *sync.Pool  // of sums that need the key; nil: rows have checksums

	blinding []byte     // key of the hashes of identities; set by bind
	terms    *sync.Pool // of keyed hashes of terms; nil: terms are hashes without a key
}

// bind lets the codec make and demand sums that need the key, and encrypted contents.
func (c *codec) bind() {
	derive := func(purpose string) []byte {
		key := hmac.New(sha256.New, c.key)
		key.Write([]byte("throttler: " + purpose))
		return key.Sum(nil)
	}
	c.blinding = derive("identities")
	derived := derive("sums of rows")
	terms := derive("terms")
	c.terms = &sync.Pool{New: func() any { return hmac.New(sha256.New, terms) }}
	c.macs = &sync.Pool{New: func() any { return &sum{mac: hmac.New(sha256.New, derived)} }}
}

// newCodec returns a codec; a nil key leaves bodies in the clear.
func newCodec(key []byte) (*codec, error) {
	if key == nil {
		return &codec{}, nil
	}
	if len(key) != 32 {
		return nil, fmt.Errorf("store: the sealing key has %d bytes, must have 32 (AES-256)", len(key))
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	return &codec{key: key, aead: aead}, err
}

// A content is the columns of a request, or of a response.
type content struct {
	method, target string // of a request
	status         int    // of a response
	truncated      bool   // likewise
	headers        string // JSON
	body           []byte
	encrypted      []byte // nonce and ciphertext of a storedContent; nil: in the clear
	sum            int64
}

// responseFields are in the order of responseColumns.
func (p *content) responseFields() []any {
	return []any{&p.status, &p.headers, &p.body, &p.truncated, &p.encrypted, &p.sum}
}

// A kind of content is authenticated with it, so none passes for another.
type kind string

const (
	requestKind  kind = "request"
	responseKind kind = "answer"
	spentKind    kind = "spent"
	keyKind      kind = "key"
	whyKind      kind = "why" // of a pause
	whoKind      kind = "who" // likewise
	decidedKind  kind = "decisions"
	auditKind    kind = "audit"
	factsKind    kind = "numbers" // which they were in earlier schemas
	proofKind    kind = "proof"   // of a seal that binds no rows
	boundKind    kind = "bound"   // of one that does
)

func (p *content) checksum(c *codec, id string, k kind) int64 {
	s := c.newSum()
	s.texts(id, string(k), p.method, p.target)
	s.ints(int64(p.status))
	s.bool(p.truncated)
	s.texts(p.headers)
	s.bytes(p.body)
	s.bytes(p.encrypted)
	return s.end()
}

// encode encrypts a content, if there is a key, and sets its checksum.
func (c *codec) encode(p *content, id string, k kind) error {
	if c.aead != nil {
		text, err := json.Marshal(storedContent{p.method, p.target, p.headers, p.body})
		if err != nil {
			return err
		}
		p.encrypted = c.encrypt(text, id, k)
		p.method, p.target, p.headers, p.body = "", "", "", nil
	}
	if p.body == nil {
		p.body = []byte{}
	}
	p.sum = p.checksum(c, id, k)
	return nil
}

// decode checks a content, and decrypts it if it is encrypted.
func (c *codec) decode(p *content, id string, k kind) error {
	if p.checksum(c, id, k) != p.sum {
		return fmt.Errorf("%s of call %s: %w", k, id, errChecksum)
	}
	if p.encrypted == nil {
		if c.macs != nil {
			return fmt.Errorf("%s of call %s is in the clear in a sealed file: %w", k, id, errChecksum)
		}
		return nil
	}
	if c.aead == nil {
		return fmt.Errorf("%s of call %s is sealed, and there is no key", k, id)
	}
	text, err := c.decrypt(p.encrypted, id, k)
	if err != nil {
		return fmt.Errorf("%s of call %s: %w", k, id, err)
	}
	var stored storedContent
	if err := json.Unmarshal(text, &stored); err != nil {
		return err
	}
	p.method, p.target, p.headers, p.body = stored.Method, stored.Target, stored.Headers, stored.Body
	return nil
}

// encrypt returns a new nonce and the ciphertext.
func (c *codec) encrypt(text []byte, id string, k kind) []byte {
	nonce := make([]byte, c.aead.NonceSize(), c.aead.NonceSize()+len(text)+c.aead.Overhead())
	rand.Read(nonce) // never fails
	return c.aead.Seal(nonce, nonce, text, []byte(string(k)+" "+id))
}

func (c *codec) decrypt(encrypted []byte, id string, k kind) ([]byte, error) {
	if n := c.aead.NonceSize(); len(encrypted) >= n {
		if text, err := c.aead.Open(nil, encrypted[:n], encrypted[n:], []byte(string(k)+" "+id)); err == nil {
			return text, nil
		}
	}
	return nil, errors.New("cannot be decrypted: another key, or a damaged file")
}

// encryptText encrypts a text for a column that has texts; in a file without a seal, and
// if it is empty, it stays as it is.
func (c *codec) encryptText(text, id string, k kind) string {
	if c.macs == nil || text == "" {
		return text
	}
	return base64.RawStdEncoding.EncodeToString(c.encrypt([]byte(text), id, k))
}

func (c *codec) decryptText(text, id string, k kind) (string, error) {
	if c.macs == nil || text == "" {
		return text, nil
	}
	encrypted, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return "", err
	}
	clear, err := c.decrypt(encrypted, id, k)
	return string(clear), err
}

// proof returns a content by which a file recognises its key.
func (c *codec) proof() ([]byte, error) {
	p := &content{}
	err := c.encode(p, "store", boundKind)
	return p.encrypted, err
}

func (c *codec) proves(proof []byte, k kind) bool {
	_, err := c.decrypt(proof, "store", k)
	return err == nil
}

func (c *codec) encodeRequest(id string, r *upstream.Request) (*content, error) {
	p := &content{method: r.Method, target: r.Target, headers: encodeHeader(r.Header), body: r.Body}
	return p, c.encode(p, id, requestKind)
}

func (c *codec) decodeRequest(id string, p *content) (*upstream.Request, error) {
	if err := c.decode(p, id, requestKind); err != nil {
		return nil, err
	}
	r := &upstream.Request{Method: p.method, Target: p.target, Body: p.body}
	return r, json.Unmarshal([]byte(p.headers), &r.Header)
}

func (c *codec) encodeResponse(id string, r *scheduler.Response) (*content, error) {
	p := &content{status: r.Status, truncated: r.Truncated, headers: encodeHeader(r.Headers), body: r.Body}
	return p, c.encode(p, id, responseKind)
}

func (c *codec) decodeResponse(id string, p *content) (*scheduler.Response, error) {
	if err := c.decode(p, id, responseKind); err != nil {
		return nil, err
	}
	r := &scheduler.Response{Status: p.status, Truncated: p.truncated, Body: p.body}
	return r, json.Unmarshal([]byte(p.headers), &r.Headers)
}

func encodeHeader(h http.Header) string {
	if len(h) == 0 {
		return "{}"
	}
	b, _ := json.Marshal(h) // texts only
	return string(b)
}
