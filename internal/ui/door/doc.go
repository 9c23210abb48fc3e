// Package door serves the web page of a cluster from a server, to people who sign in.
//
// # Signing in
//
// A person types an access token, or signs in with the OpenID Connect provider of the cluster. Either way the server
// has an access token of the API in the end, which it keeps in its memory (sessions.go). The browser gets a cookie with
// a random text, and the server keeps a hash of it. No script can read the cookie, and browsers send it only with
// requests of this page.
//
// Each request below /v1/ goes to the API of the same process with the access token of its session (pass.go). So
// rights, shares, the audit log, and the end of the token are judged by the API each time, and nowhere else. A session
// ends with its token, when its person signs out, after hours without a request, and at the latest after half a day.
// Another server, or this one after a restart, does not know it, and asks to sign in.
//
// # The provider
//
// What a sign-in with the provider is bound to travels in a sealed cookie (transaction.go): nobody who has not signed
// in takes memory. The provider sends the browser to /ui/callback. Since another site began that request, the browser
// sends no cookie of ours with it, and the answer is the page itself. Its script then sends the code in a request of
// its own, with the cookie.
//
// # Other sites
//
// Requests must name a host of the certificate (DNS rebinding). What changes something must come from this page, by
// Origin and Sec-Fetch-Site; so must all that a session or a sign-in is needed for.
package door
