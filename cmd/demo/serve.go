package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/seed-30fe103d/throttler/internal/gateway"
)

// serveGateway serves the gateway of s at addr until ctx ends. It writes the keys
// that a caller needs to files, and removes them at the end.
func serveGateway(ctx context.Context, s scenario, addr string, out io.Writer) error {
	keys := gateway.NewKeys()
	g, srv, err := s.startGateway(addr, keys)
	if err != nil {
		return err
	}
	defer srv.Close()
	dir, err := os.MkdirTemp("", "throttler-gateway-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	private, public := filepath.Join(dir, "app_private.pem"), filepath.Join(dir, "gateway_public.pem")
	if err := os.WriteFile(private, []byte(keys.Private), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(public, []byte(g.PublicKey), 0o600); err != nil {
		return err
	}

	fmt.Fprintf(out, "gateway       %s\n", srv.URL+gateway.Path)
	fmt.Fprintf(out, "app id        %s\n", appID)
	fmt.Fprintf(out, "limits        %s\n", s.limits())
	fmt.Fprintf(out, "sign with     %s\n", private)
	fmt.Fprintf(out, "verify with   %s\n", public)
	fmt.Fprintf(out, "It ends with Ctrl-C, and the key files with it.\n")
	<-ctx.Done()
	return nil
}
