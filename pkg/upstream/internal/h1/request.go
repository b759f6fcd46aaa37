package h1

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// apart are the fields that a connection writes itself, before the others or not at all: RFC 9112,
// 3.2 and 6.
var apart = []string{"Host", "User-Agent", "Content-Length", "Transfer-Encoding", "Trailer"}

// fieldsOnStack is how many fields of a head are sorted without an allocation.
const fieldsOnStack = 32

// writeRequest writes a request as net/http does: its fields in the order of their names. Its body
// must have ContentLength bytes. After an error a part of the request may have been written.
func writeRequest(w *bufio.Writer, req *http.Request) error {
	if n := req.ContentLength; n < 0 || n > 0 && req.Body == nil {
		return fmt.Errorf("a body of %d bytes cannot be sent: its length must be known, and it must be there", n)
	}
	target := req.URL.RequestURI()
	host, err := httpguts.PunycodeHostPort(withoutZone(req.Host))
	if err != nil || !httpguts.ValidHeaderFieldName(req.Method) || !httpguts.ValidHostHeader(host) || strings.ContainsFunc(target, blank) {
		return fmt.Errorf("method %q, host %q or the target holds a byte that no request may have", req.Method, req.Host)
	}
	w.WriteString(req.Method)
	w.WriteByte(' ')
	w.WriteString(target)
	w.WriteString(" HTTP/1.1\r\n")
	writeField(w, "Host", host)
	var room [fieldsOnStack]string
	names := room[:0]
	for name, values := range req.Header {
		if !slices.Contains(apart, http.CanonicalHeaderKey(name)) {
			names = append(names, name)
		} else if strings.EqualFold(name, "User-Agent") && len(values) > 0 && values[0] != "" {
			if err := writeField(w, name, values[0]); err != nil {
				return err
			}
		}
	}
	if n := req.ContentLength; n > 0 || req.Method == http.MethodPost || req.Method == http.MethodPut || req.Method == http.MethodPatch {
		w.WriteString("Content-Length: ")
		w.Write(strconv.AppendInt(w.AvailableBuffer(), n, 10))
		w.WriteString("\r\n")
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range req.Header[name] {
			if err := writeField(w, name, value); err != nil {
				return err
			}
		}
	}
	w.WriteString("\r\n")
	if req.Body == nil {
		return nil
	}
	n, err := io.Copy(w, req.Body)
	if err == nil && n != req.ContentLength {
		err = fmt.Errorf("the body has %d bytes, and its length is said to be %d", n, req.ContentLength)
	}
	return err
}

// blank reports whether a byte ends a target, or may not be in one.
func blank(c rune) bool { return c <= ' ' || c == 0x7f }

func writeField(w *bufio.Writer, name, value string) error {
	if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
		return fmt.Errorf("header %q holds a byte that no field may have", name)
	}
	w.WriteString(name)
	w.WriteString(": ")
	w.WriteString(textproto.TrimString(value))
	_, err := w.WriteString("\r\n")
	return err
}

// withoutZone returns the address of a host without its zone, which concerns this host alone: RFC
// 6874, 1.
func withoutZone(host string) string {
	address, zone, _ := strings.Cut(host, "%")
	if _, port, ok := strings.Cut(zone, "]"); ok {
		return address + "]" + port
	}
	return host
}
