// Package fleet runs servers of the real program as processes of their own, on loopback, with TLS and their logs on
// disk, and looks at them as an operator would: by their API, and by what the kernel says of the processes.
package fleet
