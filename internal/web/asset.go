package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
)

// staticPath is the path of the assets. The name of each has a hash of its bytes, so a browser
// keeps it for good.
const staticPath = "/ui/static/"

// An asset is a style sheet, a script or a picture.
type asset struct {
	name  string // without its hash
	bytes []byte
}

// assets are all, by their path under staticPath, and hashed has those paths by names.
var assets, hashed = readAssets()

func readAssets() (map[string]asset, map[string]string) {
	all, paths := make(map[string]asset), make(map[string]string)
	err := fs.WalkDir(files, "static", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := files.ReadFile(file)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(file, "static/")
		sum := sha256.Sum256(content)
		ext := path.Ext(name)
		if ext == ".lock" || ext == ".LICENSE" { // about the files beside them
			return nil
		}
		at := strings.TrimSuffix(name, ext) + "." + base64.RawURLEncoding.EncodeToString(sum[:9]) + ext
		all[at], paths[name] = asset{name, content}, at
		return nil
	})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return all, paths
}

func serveAsset(w http.ResponseWriter, r *http.Request) {
	a, ok := assets[strings.TrimPrefix(r.URL.Path, staticPath)]
	if !ok {
		http.Error(w, "no such file of the dashboard; reload the page", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(a.name)))
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeContent(w, r, a.name, time.Time{}, bytes.NewReader(a.bytes))
}
