package web

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"testing"
)

// TestVendor compares the files of others with vendor.lock, which names the npm package of
// each, and holds that each comes with its licence.
func TestVendor(t *testing.T) {
	const folder = "static/vendor"
	content, err := files.ReadFile(folder + "/vendor.lock")
	if err != nil {
		t.Fatal(err)
	}
	var lock map[string]struct{ Name, Version, Integrity, Path, Licence, SHA256 string }
	if err := json.Unmarshal(content, &lock); err != nil {
		t.Fatal(err)
	}
	found, err := fs.ReadDir(files, folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range found {
		name := entry.Name()
		if name == "vendor.lock" || strings.HasSuffix(name, ".LICENSE") {
			continue
		}
		l, ok := lock[name]
		if !ok {
			t.Errorf("%s is not in vendor.lock", name)
			continue
		}
		content, err := files.ReadFile(path.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != l.SHA256 {
			t.Errorf("%s has the hash %x, in vendor.lock %s", name, sum, l.SHA256)
		}
		digest, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(l.Integrity, "sha512-"))
		if err != nil || len(digest) != 64 || l.Version == "" || l.Path == "" {
			t.Errorf("%s: name, version, path and integrity of the npm package are %+v", name, l)
		}
		licence, err := files.ReadFile(folder + "/" + l.Name + ".LICENSE")
		if err != nil || len(licence) < 100 || l.Licence == "" {
			t.Errorf("%s comes without its licence: %v", name, err)
		}
		delete(lock, name)
	}
	for name := range lock {
		t.Errorf("%s of vendor.lock is not there", name)
	}
}

// TestAssets holds that a browser keeps each asset, and that nothing else is served.
func TestAssets(t *testing.T) {
	p := newPages(t, &stub{})
	for at := range assets {
		w := ask(t, p, staticPath+at, nil)
		if w.Code != http.StatusOK || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") || w.Header().Get("Content-Type") == "" {
			t.Errorf("%s: %d %v", at, w.Code, w.Header())
		}
	}
	for _, at := range []string{"", "style.css", "../templates/act.html", "vendor/"} {
		if w := ask(t, p, staticPath+at, nil); w.Code == http.StatusOK {
			t.Errorf("%q is served", at)
		}
	}
}
