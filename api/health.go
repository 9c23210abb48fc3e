package api

// Health is the answer to probes.
type Health struct {
	Status string `json:"status" enum:"ok"`
	Name   string `json:"name"`
	Leader bool   `json:"leader" doc:"this server leads"`
	Index  uint64 `json:"index"`
	Disk   Disk   `json:"disk" enum:"enough,low,full,unknown" doc:"room on the disk of its data_dir"`
}
