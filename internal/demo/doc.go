// Package demo tells the story of `outspan demo` on a real cluster, and checks everything that it tells.
package demo
