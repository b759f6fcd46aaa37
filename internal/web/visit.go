package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// A visit is one request for a page.
type visit struct {
	*http.Request
	pages *Pages
	lang  *speech
	now   time.Time

	Caller  caller
	Refused *problem  // of the form that was sent, if it was refused
	cookies []string  // that the API has set
	known   *api.Info // that the API has told
}

// writing are the scopes of a person that pages have no use for if they change nothing.
var writing = []string{"submit", "operate"}

// info asks the API about the process and the person, once for each visit.
func (v *visit) info() (info api.Info, err error) {
	if v.known != nil {
		return *v.known, nil
	}
	if err = v.get("/v1/info", nil, &info); err != nil {
		return info, err
	}
	if v.pages.ui().ReadOnly {
		info.Caller.Scopes = slices.DeleteFunc(info.Caller.Scopes, func(s string) bool { return slices.Contains(writing, s) })
	}
	v.known = &info
	return info, nil
}

// Now is the instant of the page.
func (v *visit) Now() time.Time { return v.now }

// again returns the visit as of now.
func (v *visit) again() *visit {
	again := *v
	again.now, again.known = time.Now(), nil
	return &again
}

// theme returns the one that the person has chosen, empty for that of the system.
func (v *visit) theme() string {
	if c, err := v.Cookie(themeCookie); err == nil && slices.Contains(themes, c.Value) {
		return c.Value
	}
	return ""
}

// A problem is an answer of the API that is an error.
type problem api.Problem

func (p *problem) Error() string { return p.Detail }

// asProblem returns an error as a problem.
func asProblem(err error) *problem {
	if p := new(problem); errors.As(err, &p) {
		return p
	}
	return &problem{Status: http.StatusInternalServerError, Title: "Internal error", Detail: err.Error()}
}

// malformed is the error of a request that a page cannot read.
func (v *visit) malformed(detail string) *problem {
	return &problem{Status: http.StatusBadRequest, Title: v.lang.mustText("problem.bad_request"), Detail: detail}
}

// missing is the error of a page that is not there.
func (v *visit) missing(detail string) *problem {
	return &problem{Status: http.StatusNotFound, Title: v.lang.mustText("problem.not_found"), Detail: detail}
}

// get reads a resource of the API into out.
func (v *visit) get(path string, query url.Values, out any) error {
	return v.do(http.MethodGet, path, query, nil, out)
}

// post sends in to the API.
func (v *visit) post(path string, in any) error {
	return v.do(http.MethodPost, path, nil, in, nil)
}

// do asks the API as the caller of the visit. Its error is a problem.
func (v *visit) do(method, path string, query url.Values, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	a := v.ask(method, path, query, body)
	if a.status >= 400 {
		p := &problem{Status: a.status, Title: http.StatusText(a.status), Detail: a.body.String()}
		json.Unmarshal(a.body.Bytes(), p) // another body stays its own text
		if title, err := v.lang.text("problem." + p.Reason); err == nil {
			p.Title = title
		}
		return p
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(a.body.Bytes(), out); err != nil {
		return fmt.Errorf("the answer to %s %s cannot be read: %w", method, path, err)
	}
	return nil
}

// ask returns the answer of the API as it is.
func (v *visit) ask(method, path string, query url.Values, body []byte) *recorder {
	a := &recorder{header: http.Header{}, status: http.StatusOK}
	v.pages.api.ServeHTTP(a, v.request(method, path, query, body))
	v.cookies = append(v.cookies, a.header["Set-Cookie"]...)
	return a
}

// request returns a request for the API with all that shows the caller of the visit.
func (v *visit) request(method, path string, query url.Values, body []byte) *http.Request {
	r := v.Request.Clone(v.Context())
	u, err := url.Parse(path) // its values are escaped
	if err != nil {
		panic("BUG: " + err.Error())
	}
	u.RawQuery = query.Encode()
	r.Method, r.URL, r.Pattern = method, u, ""
	r.RequestURI = r.URL.RequestURI()
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	r.Form, r.PostForm, r.MultipartForm = nil, nil, nil
	for _, name := range []string{"Content-Type", "Content-Length", "Content-Encoding", "Accept", "Accept-Encoding", "If-None-Match", "Last-Event-ID", "Prefer", "Range", "Idempotency-Key"} {
		r.Header.Del(name)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if r.Context().Value(followed{}) != nil {
		r.Header.Set(api.Background, "1")
	}
	return r
}

// A recorder keeps an answer of the API.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }
func (r *recorder) WriteHeader(status int)      { r.status = status }

// Flush is for answers that stream, as those of another replica do: they are kept as a whole.
func (r *recorder) Flush() {}
