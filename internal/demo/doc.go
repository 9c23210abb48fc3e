// Package demo runs `outspan demo` on a real cluster, and checks everything that the demo claims.
package demo
