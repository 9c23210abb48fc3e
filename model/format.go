package model

// CurrentFormat is the newest format this program writes and reads. A state of a newer one stops the server.
const CurrentFormat uint16 = 1
