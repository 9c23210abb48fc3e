// Package idp is an OpenID Connect provider for tests, on a loopback address. It has one public client with the
// device flow and with authorization codes. The test plays the person: it approves or denies each code of a device, and
// follows a link in the browser.
package idp
