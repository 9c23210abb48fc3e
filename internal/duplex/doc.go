// Package duplex carries several streams of bytes, called lanes, in both directions of one request and its answer. The
// body of the request is one direction, the body of the answer is the other. `outspan instance exec` and `outspan
// instance forward` use it from the client through any server to an agent.
//
// # Frames
//
// Each direction is a sequence of frames: a byte with the Kind, four bytes with the number of the lane, four bytes with
// the length of what follows (both big-endian), and at most MaxFrame bytes.
//
//	1 data     bytes of the lane
//	2 end      the sender writes no more to the lane; empty
//	3 window   the receiver has consumed so many more bytes of the lane: four bytes, big-endian
//	4 message  JSON, on lane 0; the operations define what it means
//	5 open     the sender begins the lane; empty
//	6 reset    the lane is broken off in both directions; a text says why
//
// # Flow control
//
// The sender of a lane has at most Window bytes under way that the receiver has not consumed: it counts what it sends,
// and a window frame gives back. So a lane whose reader is slow delays no other lane, nobody in between must keep
// anything, and each end keeps at most Window bytes for each lane. A receiver that gets more than Window bytes ends the
// whole stream, as for any other frame that is not as above.
package duplex
