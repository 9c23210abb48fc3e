package transport

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/outspan/outspan/model"
)

// The pause before the listener tries a taken port again. It doubles after each try, up to relistenMost.
const (
	relistenFirst = 250 * time.Millisecond
	relistenMost  = 15 * time.Second
)

// PatientListener listens on a TCP port that another process may have. While the port is taken, Accept tries to open it
// again and again.
type PatientListener struct {
	addr *net.TCPAddr
	tell func(error)

	ctx    context.Context // canceled by Close
	cancel context.CancelFunc
	mu     sync.Mutex
	raw    net.Listener // nil while the port is taken
}

// ListenPatiently opens the TCP port of addr (IP:port). If another process has the port, it returns a listener that
// waits for the port. Then tell is called with the error of each failed try, and with nil once the port is open. The
// function tell must not block. Code: listen_failed, if waiting can't help.
func ListenPatiently(ctx context.Context, addr string, tell func(error)) (*PatientListener, error) {
	at, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, model.Refuse(model.CodeListen, "can't listen on %s: %v", addr, err).
			WithHint("check listen.address and listen.port")
	}
	l := &PatientListener{addr: at, tell: tell}
	l.ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if l.raw, err = ListenTCP(ctx, addr); err == nil {
		return l, nil
	}
	l.raw = nil
	if !addressInUse(err) {
		l.cancel()
		return nil, err
	}
	tell(err)
	return l, nil
}

func addressInUse(err error) bool {
	var refused *model.Error
	return errors.As(err, &refused) && refused.Code == model.CodeAddressInUse
}

// Accept implements net.Listener.
func (l *PatientListener) Accept() (net.Conn, error) {
	raw, err := l.open()
	if err != nil {
		return nil, err
	}
	return raw.Accept()
}

// open returns the listener once the port is open, or net.ErrClosed after Close. It must not be called concurrently.
func (l *PatientListener) open() (net.Listener, error) {
	l.mu.Lock()
	raw := l.raw
	l.mu.Unlock()
	for pause := relistenFirst; raw == nil; pause = min(2*pause, relistenMost) {
		sleep(l.ctx, pause)
		if l.ctx.Err() != nil {
			return nil, net.ErrClosed
		}
		found, err := ListenTCP(l.ctx, l.addr.String())
		if err != nil {
			l.tell(err)
			continue
		}
		l.mu.Lock()
		if l.ctx.Err() != nil {
			l.mu.Unlock()
			_ = found.Close()
			return nil, net.ErrClosed
		}
		l.raw, raw = found, found
		l.mu.Unlock()
		l.tell(nil)
	}
	return raw, nil
}

// Close implements net.Listener.
func (l *PatientListener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel()
	if l.raw == nil {
		return nil
	}
	return l.raw.Close()
}

// Addr implements net.Listener. While another process has the port, Addr returns the requested address.
func (l *PatientListener) Addr() net.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.raw != nil {
		return l.raw.Addr()
	}
	return l.addr
}
