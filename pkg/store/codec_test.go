package store

import (
	"os"
	"strings"
	"testing"

	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
)

var key = []byte("0123456789abcdef0123456789abcdef")

// TestEncryption: an encrypted file has nothing in the clear, and only its key opens it.
func TestEncryption(t *testing.T) {
	path := file(t)
	d := open(t, path, Options{SealKey: key})
	e := storetest.NewEntry(1)
	e.Request.Body, e.Request.Target = []byte("visa 4111-1111"), "/4111-1111"
	e.Key, e.Fingerprint = "key 4111-1111", "f"
	if _, err := d.Accept(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	d.Close()
	text, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(text), "4111-1111") {
		t.Errorf("the number is in the file: %v", err)
	}
	for name, wrong := range map[string][]byte{"no key": nil, "another key": []byte("f123456789abcdef0123456789abcdef"), "a short key": key[:16]} {
		if _, err := Open(path, Options{Log: quiet, SealKey: wrong}); err == nil {
			t.Errorf("%s opens it", name)
		}
	}
	again := open(t, path, Options{SealKey: key})
	if got, err := again.Fetch(t.Context(), e.Call.ID); err != nil || string(got.Request.Body) != "visa 4111-1111" {
		t.Errorf("%+v, %v", got, err)
	}
}
