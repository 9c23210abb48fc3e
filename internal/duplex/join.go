package duplex

import (
	"io"
	"net"
)

// Join copies between a lane and a connection until both directions have ended, or one has failed. It closes the
// connection, and ends or resets the lane.
func Join(l *Lane, c net.Conn) {
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
	if err := <-done; err != nil {
		l.Reset("the connection broke off")
		c.Close()
	}
	if err := <-done; err != nil {
		l.Reset("the connection broke off")
	}
}
