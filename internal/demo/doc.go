// Package demo runs `outspan demo` on a real cluster, and checks everything that it claims.
package demo
