package duplex

import (
	"cmp"
	"io"
	"net"
)

// Join copies between a lane and a connection until both directions have ended, or one has failed. It closes the
// connection, and ends or resets the lane. It returns the first failure, which is a *ResetError if the peer broke off.
func Join(l *Lane, c net.Conn) error {
	defer c.Close()
	done := make(chan error, 2)
	go func() {
		_, err := io.Copy(c, l)
		if half, ok := c.(interface{ CloseWrite() error }); ok && err == nil {
			err = half.CloseWrite()
		}
		done <- err
	}()
	go func() {
		_, err := io.Copy(l, c)
		if err == nil {
			err = l.CloseWrite()
		}
		done <- err
	}()
	first := <-done
	if first != nil {
		l.Reset("")
		c.Close()
	}
	second := <-done
	if second != nil {
		l.Reset("")
	}
	return cmp.Or(first, second)
}
