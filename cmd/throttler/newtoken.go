package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-30fe103d/throttler/internal/hint"
	"github.com/seed-30fe103d/throttler/pkg/config"
)

// tokenSize is the size of a token's random part, in bytes.
const tokenSize = 32

func newToken() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make tokens for callers of the admin API",
	}
	make := &cobra.Command{
		Use:   "new NAME --role ROLE",
		Short: "Make a token, and the line of the configuration that knows it",
		Long: `Make a token for a caller of the admin API: 256 random bits. It is printed once, and
kept nowhere; the line for access.tokens, on standard error, has its SHA-256 only. The
caller sends it as Authorization: Bearer TOKEN.

A viewer reads all but bodies; a submitter submits calls, and sees its own ones; an
operator submits, pauses and decides too; an admin may do everything.`,
		Example: "  throttler token new oncall --role operator > oncall.token",
		Args:    exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			role, _ := cmd.Flags().GetString("role")
			if !slices.Contains(config.Roles, role) {
				return fmt.Errorf("--role is %q, must be one of %s%s", role, strings.Join(config.Roles, ", "), hint.Meant(role, config.Roles))
			}
			if err := config.CheckCallerName(args[0]); err != nil {
				return fmt.Errorf("NAME %w", err)
			}
			random := [tokenSize]byte{}
			rand.Read(random[:]) // never fails
			token := config.TokenPrefix + base64.RawURLEncoding.EncodeToString(random[:])
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), token); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.ErrOrStderr(), "The token is shown only this once. The line for access.tokens of the configuration:\n  - {name: %s, role: %s, sha256: %x}\n", args[0], role, sha256.Sum256([]byte(token)))
			return err
		},
	}
	make.Flags().String("role", "", "`role` of the caller: "+strings.Join(config.Roles, ", "))
	return group(cmd, make)
}
