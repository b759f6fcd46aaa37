package columns

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"sync"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A Codec turns requests and responses into columns and back. It encrypts them if it
// has a key, and it checks their checksums.
type Codec struct {
	key  []byte
	aead cipher.AEAD // nil: in the clear
	macs *sync.Pool  // of sums that need the key; nil: rows have checksums

	blinding []byte     // key of the hashes of identities; set by bind
	terms    *sync.Pool // of keyed hashes of terms; nil: terms are hashes without a key
}

// Bind lets the codec make and demand sums that need the key, and encrypted contents.
func (c *Codec) Bind() {
	derive := func(purpose string) []byte {
		key := hmac.New(sha256.New, c.key)
		key.Write([]byte("throttler: " + purpose))
		return key.Sum(nil)
	}
	c.blinding = derive("identities")
	derived := derive("sums of rows")
	terms := derive("terms")
	c.terms = &sync.Pool{New: func() any { return hmac.New(sha256.New, terms) }}
	c.macs = &sync.Pool{New: func() any { return &Sum{mac: hmac.New(sha256.New, derived)} }}
}

// NewCodec returns a codec; a nil key leaves bodies in the clear.
func NewCodec(key []byte) (*Codec, error) {
	if key == nil {
		return &Codec{}, nil
	}
	if len(key) != 32 {
		return nil, fmt.Errorf("store: the sealing key has %d bytes, must have 32 (AES-256)", len(key))
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	return &Codec{key: key, aead: aead}, err
}

// HasKey reports whether the codec encrypts.
func (c *Codec) HasKey() bool { return c.aead != nil }

// Loose returns a codec with the same key that binds no rows to it.
func (c *Codec) Loose() *Codec { return &Codec{aead: c.aead} }

// A Content is the columns of a request, or of a response.
type Content struct {
	Method, Target string // of a request
	Status         int    // of a response
	Truncated      bool   // likewise
	Headers        string // JSON
	Body           []byte
	Encrypted      []byte // nonce and ciphertext of a StoredContent; nil: in the clear
	Sum            int64
}

// ResponseFields are in the order of OfResponse.
func (p *Content) ResponseFields() []any {
	return []any{&p.Status, &p.Headers, &p.Body, &p.Truncated, &p.Encrypted, &p.Sum}
}

// A Kind of content is authenticated with it, so none passes for another.
type Kind string

const (
	RequestKind  Kind = "request"
	ResponseKind Kind = "answer"
	spentKind    Kind = "spent"
	keyKind      Kind = "key"
	whyKind      Kind = "why" // of a pause
	whoKind      Kind = "who" // likewise
	decidedKind  Kind = "decisions"
	auditKind    Kind = "audit"
	FactsKind    Kind = "numbers" // which they were in earlier schemas
	ProofKind    Kind = "proof"   // of a seal that binds no rows
	BoundKind    Kind = "bound"   // of one that does
)

func (p *Content) Checksum(c *Codec, id string, k Kind) int64 {
	s := c.NewSum()
	s.Texts(id, string(k), p.Method, p.Target)
	s.Ints(int64(p.Status))
	s.bool(p.Truncated)
	s.Texts(p.Headers)
	s.Bytes(p.Body)
	s.Bytes(p.Encrypted)
	return s.End()
}

// Encode encrypts a content, if there is a key, and sets its checksum.
func (c *Codec) Encode(p *Content, id string, k Kind) error {
	if c.aead != nil {
		text, err := json.Marshal(StoredContent{p.Method, p.Target, p.Headers, p.Body})
		if err != nil {
			return err
		}
		p.Encrypted = c.encrypt(text, id, k)
		p.Method, p.Target, p.Headers, p.Body = "", "", "", nil
	}
	if p.Body == nil {
		p.Body = []byte{}
	}
	p.Sum = p.Checksum(c, id, k)
	return nil
}

// Decode checks a content, and decrypts it if it is encrypted.
func (c *Codec) Decode(p *Content, id string, k Kind) error {
	if p.Checksum(c, id, k) != p.Sum {
		return fmt.Errorf("%s of call %s: %w", k, id, ErrChecksum)
	}
	if p.Encrypted == nil {
		if c.macs != nil {
			return fmt.Errorf("%s of call %s is in the clear in a sealed file: %w", k, id, ErrChecksum)
		}
		return nil
	}
	if c.aead == nil {
		return fmt.Errorf("%s of call %s is sealed, and there is no key", k, id)
	}
	text, err := c.decrypt(p.Encrypted, id, k)
	if err != nil {
		return fmt.Errorf("%s of call %s: %w", k, id, err)
	}
	var stored StoredContent
	if err := json.Unmarshal(text, &stored); err != nil {
		return err
	}
	p.Method, p.Target, p.Headers, p.Body = stored.Method, stored.Target, stored.Headers, stored.Body
	return nil
}

// encrypt returns a new nonce and the ciphertext.
func (c *Codec) encrypt(text []byte, id string, k Kind) []byte {
	nonce := make([]byte, c.aead.NonceSize(), c.aead.NonceSize()+len(text)+c.aead.Overhead())
	rand.Read(nonce) // never fails
	return c.aead.Seal(nonce, nonce, text, []byte(string(k)+" "+id))
}

func (c *Codec) decrypt(encrypted []byte, id string, k Kind) ([]byte, error) {
	if n := c.aead.NonceSize(); len(encrypted) >= n {
		if text, err := c.aead.Open(nil, encrypted[:n], encrypted[n:], []byte(string(k)+" "+id)); err == nil {
			return text, nil
		}
	}
	return nil, errors.New("cannot be decrypted: another key, or a damaged file")
}

// EncryptText encrypts a text for a column that has texts; in a file without a seal, and
// if it is empty, it stays as it is.
func (c *Codec) EncryptText(text, id string, k Kind) string {
	if c.macs == nil || text == "" {
		return text
	}
	return base64.RawStdEncoding.EncodeToString(c.encrypt([]byte(text), id, k))
}

func (c *Codec) DecryptText(text, id string, k Kind) (string, error) {
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

// Blind returns the hash of an identity as a file has it: in a sealed one only the key can
// tell whether a guess is right.
func (c *Codec) Blind(hash []byte) []byte {
	if c.macs == nil {
		return hash
	}
	h := hmac.New(sha256.New, c.blinding)
	h.Write(hash)
	return h.Sum(nil)
}

// Term returns the hash of a text.
func (c *Codec) Term(text string) Term {
	if c.terms == nil {
		h := sha256.Sum256([]byte(text))
		return Term(binary.BigEndian.Uint64(h[:]))
	}
	h := c.terms.Get().(hash.Hash)
	defer c.terms.Put(h)
	h.Reset()
	h.Write([]byte(text))
	return Term(binary.BigEndian.Uint64(h.Sum(nil)))
}

// Proof returns a content by which a file recognises its key.
func (c *Codec) Proof() ([]byte, error) {
	p := &Content{}
	err := c.Encode(p, "store", BoundKind)
	return p.Encrypted, err
}

func (c *Codec) Proves(proof []byte, k Kind) bool {
	_, err := c.decrypt(proof, "store", k)
	return err == nil
}

func (c *Codec) EncodeRequest(id string, r *upstream.Request) (*Content, error) {
	p := &Content{Method: r.Method, Target: r.Target, Headers: encodeHeader(upstream.Spelt(r.Header, r.Names)), Body: r.Body}
	return p, c.Encode(p, id, RequestKind)
}

func (c *Codec) DecodeRequest(id string, p *Content) (*upstream.Request, error) {
	if err := c.Decode(p, id, RequestKind); err != nil {
		return nil, err
	}
	var header http.Header // under the names that go out
	if err := json.Unmarshal([]byte(p.Headers), &header); err != nil {
		return nil, err
	}
	r := &upstream.Request{Method: p.Method, Target: p.Target, Body: p.Body}
	r.Header, r.Names = upstream.Canonical(header)
	return r, nil
}

func (c *Codec) EncodeResponse(id string, r *scheduler.Response) (*Content, error) {
	p := &Content{Status: r.Status, Truncated: r.Truncated, Headers: encodeHeader(r.Headers), Body: r.Body}
	return p, c.Encode(p, id, ResponseKind)
}

func (c *Codec) DecodeResponse(id string, p *Content) (*scheduler.Response, error) {
	if err := c.Decode(p, id, ResponseKind); err != nil {
		return nil, err
	}
	r := &scheduler.Response{Status: p.Status, Truncated: p.Truncated, Body: p.Body}
	return r, json.Unmarshal([]byte(p.Headers), &r.Headers)
}

func encodeHeader(h http.Header) string {
	if len(h) == 0 {
		return "{}"
	}
	b, _ := json.Marshal(h) // texts only
	return string(b)
}
