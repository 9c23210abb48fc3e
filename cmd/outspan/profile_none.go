//go:build !profile

package main

// startProfile does nothing: only a build with the tag profile can be profiled.
func startProfile() (end func()) { return func() {} }
