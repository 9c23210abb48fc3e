// Package idp is an OpenID Connect provider for tests, on a loopback address. It has one public client and the device
// flow. The test plays the person: it approves or denies each code.
package idp
