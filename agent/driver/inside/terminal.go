package inside

import (
	"golang.org/x/sys/unix"
)

// Size is the size of a terminal in characters. With 0 the kernel reports an unknown size.
type Size struct {
	Rows    uint16 `cbor:"1,keyasint"`
	Columns uint16 `cbor:"2,keyasint"`
}

// OpenTerminal makes a terminal. The command gets slave. Both descriptors are closed on exec. It works in any mount
// namespace that has /dev/ptmx.
func OpenTerminal(size Size) (master, slave int, err error) {
	master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, 0, err
	}
	if err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err == nil {
		err = SetSize(master, size)
	}
	if err == nil {
		slave, err = peer(master)
	}
	if err != nil {
		_ = unix.Close(master)
	}
	return master, slave, err
}

func peer(master int) (int, error) {
	flags := uintptr(unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC)
	slave, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, flags)
	if errno != 0 {
		return 0, errno
	}
	return int(slave), nil
}

// SetSize changes the size of a terminal.
func SetSize(terminal int, s Size) error {
	return unix.IoctlSetWinsize(terminal, unix.TIOCSWINSZ, &unix.Winsize{Row: s.Rows, Col: s.Columns})
}
