// Package ui serves the web page of a cluster to one person on this machine. The package door below it serves the same
// files (Files) to people who sign in at a server.
//
// # Getting in
//
// Open listens on a free port of 127.0.0.1 and writes a file that only the caller can read. The file leads a browser to
// the page, with a code in the fragment of the address: a fragment is not sent to servers, and a file's name shows
// nothing, while every user of a machine can read the arguments of a program. The page exchanges the code for a secret
// (entry.go), which it sends as a header of each later request. There is no cookie, so that no other page can use the
// browser's.
//
// Each request must name the exact host 127.0.0.1:PORT, which a page of another name never does (DNS rebinding), and
// come from a connection of the same user (peer.go). If the browser says which page makes a request, it must be this
// page (guard.go).
//
// # What it passes on
//
// Requests below /v1/ go to the servers by the identity of the caller of outspan ui, with the method, the path, the
// query, the JSON body, and Accept if it asks for lines (proxy.go). Everything else is a file of the page (assets.go).
//
// # The page
//
// All tabs share a worker, which holds their only long connection, the page's stream (page/hub.js). Everything else is
// a short request. The worker serves a tab once the tab has shown the secret.
//
// The folder page has ES modules without a build step. CONTRIBUTING.md describes how to change it. page/vendor.txt
// lists the libraries with their licences and checksums; page/vendor.sh makes the folder page/vendor from them.
package ui
